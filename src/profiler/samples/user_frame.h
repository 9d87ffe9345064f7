// A user frame as wl_stack_event has it.
#pragma once

#include <cstdint>

#include "windlass/registers.h"
#include "windlass_event_layout.h"

namespace windlass::profiler {

[[nodiscard]] inline bool is_exact(std::uint64_t frame) { return (frame & WL_FRAME_EXACT) != 0; }

[[nodiscard]] inline CodeAddress code_address(std::uint64_t frame) {
  return is_exact(frame) ? CodeAddress::instruction(frame & ~WL_FRAME_EXACT) : CodeAddress::return_address(frame);
}

// The address that it is looked up at: of a return address one within the call, which may be its function's last
// instruction.
[[nodiscard]] inline std::uint64_t lookup_address(std::uint64_t frame) { return code_address(frame).lookup(); }

}  // namespace windlass::profiler
