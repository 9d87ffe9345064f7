// A budget of work that has been spent.
#pragma once

#include "base/monotonic.h"
#include "profiler/samples/work_budget.h"

namespace windlass::test {

// Works so long, at least, by the thread's own clock.
inline void work_for(std::int64_t ns) {
  const std::uint64_t until = thread_time_ns() + static_cast<std::uint64_t>(ns);
  while (thread_time_ns() < until) continue;
}

// The time to follow code; the time to walk.
inline void use_up_following(profiler::WorkBudget& budget, std::int64_t ns) {
  if (!budget.begin()) return;
  work_for(ns);
  budget.end();
}
inline void use_up_walking(profiler::WorkBudget& budget, std::int64_t ns) {
  budget.begin_sample();
  work_for(ns);
  budget.end_sample();
}

}  // namespace windlass::test
