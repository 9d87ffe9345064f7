// Stacks as nodes of a pool: equal stacks are one node, and stacks share the nodes of their outer locations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/export/children.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// Finds or adds stacks in a pool that nothing else adds to.
class StackInterner {
 public:
  explicit StackInterner(profile::StackPool& pool) : pool_(pool) {}

  // `stack`: innermost first. O(its size).
  std::uint32_t node_of(std::span<const std::uint32_t> stack);

 private:
  [[nodiscard]] std::uint32_t find(std::uint32_t node, std::uint32_t location) const;
  std::uint32_t add(std::uint32_t node, std::uint32_t location);

  profile::StackPool& pool_;
  Children children_;
};

// The stacks of a profile's samples as nodes of one pool: the profile's, or a new one where stacks are lists. Keeps a
// reference to the profile.
class StackNodes {
 public:
  explicit StackNodes(const profile::Profile& profile);

  [[nodiscard]] const std::vector<profile::StackPool::Node>& nodes() const { return root_.pool()->nodes(); }
  // `sample`: an index.
  [[nodiscard]] std::uint32_t of(std::size_t sample) const {
    return made_.empty() ? profile_.samples[sample].locations.node() : made_[sample];
  }
  // A sample of the profile itself.
  [[nodiscard]] std::uint32_t of(const profile::Sample& sample) const {
    return of(static_cast<std::size_t>(&sample - profile_.samples.data()));
  }

 private:
  const profile::Profile& profile_;
  profile::Stack root_;              // of the pool
  std::vector<std::uint32_t> made_;  // of each sample; empty: they are the samples' own nodes
};

}  // namespace windlass::exporter
