// A user frame as wl_stack_event has it.
#pragma once

#include <cstdint>

#include "windlass_event_layout.h"

namespace windlass::profiler {

// The address that it is looked up at: of a return address one within the call, which may be its function's last
// instruction.
[[nodiscard]] inline std::uint64_t lookup_address(std::uint64_t frame) {
  return (frame & WL_FRAME_EXACT) != 0 ? frame & ~WL_FRAME_EXACT : frame - 1;
}

}  // namespace windlass::profiler
