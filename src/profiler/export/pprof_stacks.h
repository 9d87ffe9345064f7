// The stacks of a pprof file's samples.
#pragma once

#include <cstdint>
#include <optional>
#include <protozero/data_view.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/export/id_map.h"
#include "profiler/export/stack_nodes.h"
#include "profiler/profile/stack.h"

namespace windlass::exporter {

struct SampleStack {
  std::uint32_t node = 0;
  std::uint32_t size = 0;
};

// Reads lists of location ids into a pool. The callers of an innermost location that a sample had shortly before are
// read once: most stacks of a large profile differ from others by the innermost location. Memory: O(kMostKnown) and the
// StackInterner's. Ids need no locations until settle(): a file may name them behind its samples.
class PprofStacks {
 public:
  // A stack whose callers have a node.
  struct Begun {
    std::uint32_t callers = 0, innermost = 0;  // a node, and the number of an id
    std::uint32_t size = 0;
  };

  // Of the sample at hand: ids, one behind the other. They stay where they are until take(). Throws a
  // protozero::exception if the last one is cut off.
  void add(protozero::data_view ids);
  // Of what was added since the last call. One of more than `most` locations is not read: only its size is right.
  // Throws a protozero::exception if an id is damaged.
  Begun take(std::uint64_t most);
  // Some take()s later, as what it looks at is on its way from memory until then.
  SampleStack finish(const Begun& stack);
  // Of all stacks together.
  [[nodiscard]] std::size_t nodes() const { return root_.pool()->nodes().size(); }

  // Puts the places of locations in place of their ids. `frames_in`: of each location, how many frames it makes. To be
  // called once, behind all of the above and before all that follows. Gives back memory that only the former need.
  void settle(const IdMap& locations, const std::vector<std::uint32_t>& frames_in);
  // With inlined calls. kWrong: the stack has an id that no location has.
  static constexpr std::uint64_t kWrong = ~std::uint64_t{0};
  [[nodiscard]] std::uint64_t frames_of(const SampleStack& stack) const { return frames_[stack.node]; }
  // The innermost id that no location has, of a stack that has one.
  [[nodiscard]] std::uint64_t wrong_location(const SampleStack& stack) const;
  // Of the pool.
  [[nodiscard]] profile::Stack stack_of(const SampleStack& stack) const {
    return root_.at_node(stack.node, stack.size);
  }

 private:
  static constexpr std::size_t kMostKnown = 1 << 20;
  static constexpr std::uint32_t kUnusual = std::uint32_t{1} << 31;
  // A list by the hash of its bytes. 96 bits stand for a list: the chance that two of a million are equal is 10^-17.
  struct Known {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t node = 0, size = 0;
    [[nodiscard]] bool is(const Known& hash) const { return size != 0 && low == hash.low && high == hash.high; }
  };
  static Known hash_of(protozero::data_view ids);
  Known callers_of(protozero::data_view ids, std::uint64_t most);
  [[nodiscard]] const Known* find(const Known& hash) const;
  void remember(const Known& list);
  void put(const Known& list);
  void grow();
  std::uint32_t number_of(std::uint64_t id);
  [[nodiscard]] std::uint64_t id_of(std::uint32_t number) const;

  profile::Stack root_ = profile::Stack::in_new_pool();
  std::optional<StackInterner> interner_{*root_.pool()};  // until settle()
  protozero::data_view list_;                             // of the sample at hand: its first list, or all_
  std::string all_;                                       // its lists, where it has several
  std::vector<std::uint32_t> stack_;
  std::vector<Known> known_{64};  // a power of two of them; a list is at its hash's place or beside it
  std::size_t used_ = 0;          // of known_, about
  // Until settle() a node has the number of an id: the id less 1, or kUnusual and the place in unusual_.
  std::vector<std::uint64_t> unusual_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // of unusual_
  const IdMap* locations_ = nullptr;
  std::vector<std::uint64_t> frames_;  // of each node
};

}  // namespace windlass::exporter
