// The stacks of a pprof file's samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <protozero/data_view.hpp>
#include <unordered_map>
#include <vector>

#include "profiler/export/id_map.h"
#include "profiler/export/recent_table.h"
#include "profiler/export/stack_nodes.h"
#include "profiler/profile/stack.h"

namespace windlass::exporter {

struct SampleStack {
  std::uint32_t node = 0;
  std::uint32_t size = 0;
};

// Reads lists of location ids into a pool. The callers of an innermost location that a sample had shortly before are
// read once: most stacks of a large profile differ from others by the innermost location. Equal stacks have one node if
// not too many others are between them. Memory: O(kMostKnown) and the StackInterner's. Ids need no locations until
// settle(): a file may name them behind its samples.
class PprofStacks {
 public:
  // A list of ids, one behind the other, none of them cut off.
  struct List {
    protozero::data_view ids;
    std::size_t innermost = 0;  // bytes of the first one
    std::uint64_t low = 0;      // of a hash of the others
    std::uint32_t high = 0;
  };
  // Starts to load what take() of it will look at.
  [[nodiscard]] List begin(protozero::data_view ids) const;
  // One of more than `most` locations is not read: only its size is right. Throws a protozero::exception if an id is
  // damaged.
  SampleStack take(const List& list, std::uint64_t most);
  // Of all stacks together.
  [[nodiscard]] std::size_t nodes() const { return root_.pool()->nodes().size(); }

  // Puts the places of locations in place of their ids. `frames_in`: of each location, how many frames it makes. To be
  // called once, behind all of the above and before all that follows. Gives back memory that only the former need.
  void settle(const IdMap& locations, const std::vector<std::uint32_t>& frames_in);
  // With inlined calls, or kMostFrames if there are more. kWrong: the stack has an id that no location has.
  static constexpr std::uint32_t kWrong = ~std::uint32_t{0}, kMostFrames = kWrong - 1;
  [[nodiscard]] std::uint32_t frames_of(std::uint32_t node) const { return frames_[node]; }
  // Gives back what frames_of() needs.
  void drop_frames() { frames_ = std::vector<std::uint32_t>(); }
  // Of any stack.
  [[nodiscard]] std::uint32_t most_frames() const { return most_frames_; }
  // The innermost id that no location has, of a stack that has one.
  [[nodiscard]] std::uint64_t wrong_location(const profile::Stack& stack) const;
  // Of the pool.
  [[nodiscard]] profile::Stack stack_of(const SampleStack& stack) const {
    return root_.at_node(stack.node, stack.size);
  }

 private:
  static constexpr std::size_t kMostKnown = 1 << 20, kMostLeaves = 1 << 14;
  static constexpr std::uint32_t kUnusual = std::uint32_t{1} << 31;
  // A list by the hash of its bytes. 96 bits stand for a list: the chance that two of a million are equal is 10^-17.
  struct Known {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t node = 0, size = 0;
    [[nodiscard]] std::uint64_t place() const { return low; }
    [[nodiscard]] bool is_used() const { return size != 0; }
  };
  // A whole stack. Few of a large profile are met again, so the table stays in a processor's cache.
  struct Leaf {
    std::uint32_t callers = 0, innermost = 0, node = 0;
    [[nodiscard]] std::uint64_t place() const { return hash_of_pair(callers, innermost); }
    [[nodiscard]] bool is_used() const { return node != 0; }
  };
  static protozero::data_view callers_in(const List& list);
  static void add_hash(List& list);
  Known callers_of(const List& list, std::uint64_t most);
  std::uint32_t leaf_of(std::uint32_t callers, std::uint32_t innermost);
  std::uint32_t number_of(std::uint64_t id);
  [[nodiscard]] std::uint64_t id_of(std::uint32_t number) const;

  profile::Stack root_ = profile::Stack::in_new_pool();
  std::optional<StackInterner> interner_{*root_.pool()};  // until settle()
  std::vector<std::uint32_t> stack_;
  RecentTable<Known, kMostKnown> known_;
  RecentTable<Leaf, kMostLeaves> leaves_;
  // Until settle() a node has the number of an id: the id less 1, or kUnusual and the place in unusual_.
  std::vector<std::uint64_t> unusual_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // of unusual_
  const IdMap* locations_ = nullptr;
  std::vector<std::uint32_t> frames_;  // of each node
  std::uint32_t most_frames_ = 0;
};

}  // namespace windlass::exporter
