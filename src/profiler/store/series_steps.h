// The steps of a series.
#pragma once

#include <cstdint>

#include "profiler/store/store.h"

namespace windlass::store {

// How many steps a range has. Errors: kMalformed: no step, or no range. kLimit: more than kMostSteps.
[[nodiscard]] inline Expected<std::uint64_t> steps_of(std::uint64_t from, std::uint64_t to, std::uint64_t step) {
  if (step == 0 || to < from)
    return fail(ErrorCode::kMalformed, "a range without a step, or one that ends before it begins", 0);
  const std::uint64_t steps = (to - from) / step + ((to - from) % step != 0 ? 1 : 0);
  if (steps > kMostSteps) return fail(ErrorCode::kLimit, "too many steps. Way out: longer ones", steps);
  return steps;
}

}  // namespace windlass::store
