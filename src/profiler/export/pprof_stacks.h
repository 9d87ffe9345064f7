// The stacks of a pprof file's samples.
#pragma once

#include <cstdint>
#include <optional>
#include <protozero/data_view.hpp>
#include <string>
#include <vector>

#include "profiler/export/id_map.h"
#include "profiler/export/stack_nodes.h"
#include "profiler/profile/stack.h"

namespace windlass::exporter {

struct SampleStack {
  std::uint32_t node = 0;
  std::uint32_t size = 0;
  std::uint64_t frames = 0;                       // With inlined calls.
  std::optional<std::uint64_t> wrong_location{};  // An id that no location has.
};

// Reads lists of location ids into a pool. A list that a sample had shortly before is read once. Memory: O(kMostKnown)
// and the StackInterner's.
class PprofStacks {
 public:
  // `frames_in`: of each location, how many frames it makes. Both are complete before the first call of take().
  PprofStacks(const IdMap& locations, const std::vector<std::uint32_t>& frames_in)
      : locations_(locations), frames_in_(frames_in) {}

  // How many samples are to come, about.
  void expect(std::size_t samples);
  // Of the sample at hand: ids, one behind the other. They stay where they are until take(). Throws a
  // protozero::exception if the last one is cut off.
  void add(protozero::data_view ids);
  // Of what was added since the last call. One of more than `most` locations is not read: only its size is right.
  // Throws a protozero::exception if an id is damaged.
  SampleStack take(std::uint64_t most);
  // Of the pool.
  [[nodiscard]] profile::Stack stack_of(const SampleStack& stack) const {
    return root_.at_node(stack.node, stack.size);
  }

 private:
  static constexpr std::size_t kMostKnown = 1 << 20;
  // A list by the hash of its bytes. 96 bits stand for a list: the chance that two of a million are equal is 10^-17.
  struct Known {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t node = 0, size = 0, frames = 0;
    [[nodiscard]] bool is(const Known& hash) const { return size != 0 && low == hash.low && high == hash.high; }
  };
  static Known hash_of(protozero::data_view ids);
  SampleStack read(protozero::data_view ids, std::uint64_t most);

  const IdMap& locations_;
  const std::vector<std::uint32_t>& frames_in_;
  profile::Stack root_ = profile::Stack::in_new_pool();
  StackInterner interner_{*root_.pool()};
  protozero::data_view list_;  // of the sample at hand: its first list, or all_
  std::string all_;            // its lists, where it has several
  std::vector<std::uint32_t> stack_;
  std::vector<Known> known_{2};  // a power of two of them; a list is at its hash's place or beside it
};

}  // namespace windlass::exporter
