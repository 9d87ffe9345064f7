// The trace projection of a row: what a profiler needs to find the callers, in the 16 bytes that also go into the
// kernel. Evaluators of every format push these into a sink.
#pragma once

#include <cstdint>

#include "windlass_layout.h"

namespace windlass::table {

using TraceRule = wl_rule;
static_assert(sizeof(TraceRule) == 16);

// The rule holds from `begin` on, until the next row or the end of its function.
struct TraceRow {
  std::uint64_t begin;
  TraceRule rule;
};

}  // namespace windlass::table
