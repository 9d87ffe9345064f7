// The words that the kernel side takes along of frames of managed runtimes, given to those that can tell by them what
// runs in a frame (windlass_learned_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "profiler/processes/process_table.h"

namespace windlass::profiler {

// One thread only.
class TakenWords {
 public:
  static constexpr std::size_t kMaxKnown = std::size_t{1} << 17;

  // A stack event's parts, and `maps` of its time.
  struct Stack {
    std::uint32_t space = 0;
    std::uint64_t time = 0;  // CLOCK_MONOTONIC, ns
    std::span<const std::uint64_t> frames, words;
  };
  // The Frame::function of each frame as far as it has one; of the others 0. Words that mean a function now mean it as
  // long as the kernel side takes stacks with these words for the same. What contradicts itself is left out.
  [[nodiscard]] std::vector<std::uint64_t> functions(const Stack& stack, const MapSet& maps);

 private:
  [[nodiscard]] std::uint64_t function_of(const Stack& stack, std::uint64_t frame, std::span<const std::uint64_t> words,
                                          const MapSet& maps);

  std::unordered_map<std::uint64_t, std::uint64_t> known_;  // by all that tells frames apart
  std::uint64_t window_ = 0;                                // the time that they are known for
};

}  // namespace windlass::profiler
