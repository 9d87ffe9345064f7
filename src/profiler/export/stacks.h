// Samples merged by stack.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/export/hash_slots.h"
#include "profiler/export/stack_nodes.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// Adds up the weights of the samples with the same root, comm, end and locations; leaves out those without weight. The
// nodes are those of the profile, and outlive this.
class DistinctStacks {
 public:
  struct Stack {
    const profile::Sample* sample;
    std::uint64_t weight;
    std::uint32_t node;
  };

  DistinctStacks(const profile::Profile& profile, const StackNodes& nodes, profile::ValueType type)
      : profile_(&profile), nodes_(&nodes), type_(type) {}

  void add(const profile::Sample& sample) {
    if (const std::uint64_t weight = weight_of(*profile_, sample, type_)) add(sample, weight);
  }
  // Of the profile. Returns the place in stacks().
  std::uint32_t add(const profile::Sample& sample, std::uint64_t weight) {
    const Stack stack{&sample, weight, nodes_->of(sample)};
    const std::uint32_t known =
        slots_.find(hash_of(stack), [&](std::uint32_t at) { return is_same(stacks_[at], stack); });
    if (known != profile::kNone) {
      stacks_[known].weight += weight;
      return known;
    }
    stacks_.push_back(stack);
    const auto place = static_cast<std::uint32_t>(stacks_.size() - 1);
    slots_.add(place, [&](std::uint32_t at) { return hash_of(stacks_[at]); });
    return place;
  }
  void add_all(const std::vector<profile::Sample>& samples) {
    for (const profile::Sample& sample : samples) add(sample);
  }
  [[nodiscard]] const std::vector<Stack>& stacks() const { return stacks_; }

 private:
  [[nodiscard]] std::uint64_t head_of(const Stack& stack) const {
    return std::uint64_t{stack.sample->comm} << 8 | stack.sample->end;
  }
  [[nodiscard]] bool is_same(const Stack& a, const Stack& b) const {
    return a.node == b.node && head_of(a) == head_of(b) &&
           root_of(*profile_, *a.sample) == root_of(*profile_, *b.sample);
  }
  [[nodiscard]] std::uint64_t hash_of(const Stack& stack) const {
    return mix_hash(mix_hash(mix_hash(0, head_of(stack)), root_of(*profile_, *stack.sample)), stack.node);
  }

  const profile::Profile* profile_;
  const StackNodes* nodes_;
  profile::ValueType type_;
  std::vector<Stack> stacks_;
  HashSlots slots_;
};

}  // namespace windlass::exporter
