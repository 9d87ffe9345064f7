// CLOCK_MONOTONIC, the clock of perf's and BPF's events, and a thread's share of the processors. Linux.
#pragma once

#include <cstdint>
#include <ctime>

namespace windlass {

// Each in nanoseconds. Signal-safe.
[[nodiscard]] inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}
[[nodiscard]] inline std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
// That the calling thread has had of the processors.
[[nodiscard]] inline std::uint64_t thread_time_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace windlass
