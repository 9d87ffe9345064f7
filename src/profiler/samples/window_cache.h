// Answers about words of a process's memory. The words may mean another thing later, so answers count for one window of
// time, which is that of the kernel side (WL_LEARNED_WINDOW_SHIFT).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "windlass_learned_layout.h"

namespace windlass::profiler {

// One thread only.
template <typename Value>
class WindowCache {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 17;

  // What counts at a time, CLOCK_MONOTONIC in ns, by a hash of the question. `state`: answers of another state do not
  // count either.
  [[nodiscard]] std::unordered_map<std::uint64_t, Value>& at(std::uint64_t time, std::uint64_t state = 0) {
    const std::uint64_t window = time >> WL_LEARNED_WINDOW_SHIFT;
    if (window != window_ || state != state_ || answers_.size() >= kMost) answers_.clear();
    window_ = window;
    state_ = state;
    return answers_;
  }

 private:
  std::unordered_map<std::uint64_t, Value> answers_;
  std::uint64_t window_ = 0, state_ = 0;
};

}  // namespace windlass::profiler
