// For workloads that measure their own waits.
#pragma once

#include <sys/resource.h>

#include <cstdint>

// How often the calling thread has lost its CPU without having waited. Such a loss may lie between a reading of the
// clock and the wait, so a measured time with a loss in it is no more than a bound of the wait.
inline std::int64_t times_lost_cpu() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}
