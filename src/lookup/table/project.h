// A full row's trace projection. The fast way to a table does not go through full rows (trace_state.h); this is for
// rows that come from elsewhere, and what the fast way is held against.
#pragma once

#include <cstdint>

#include "base/registers.h"
#include "lookup/table/trace_row.h"
#include "windlass/frame_row.h"

namespace windlass::table {

// `x_reg`: the register the rule's x part is about, or WL_NO_XREG.
[[nodiscard]] TraceRule project(const FrameRow& row, Architecture architecture, std::uint8_t x_reg);

}  // namespace windlass::table
