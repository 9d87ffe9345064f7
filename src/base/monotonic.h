// CLOCK_MONOTONIC, the clock of perf's and BPF's events. Linux.
#pragma once

#include <cstdint>
#include <ctime>

namespace windlass {

// In nanoseconds. Signal-safe.
[[nodiscard]] inline std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace windlass
