// A walk's end, as samples have it.
#pragma once

#include <cstdint>

#include "windlass/walk.h"
#include "windlass_ends.h"

namespace windlass::profile {

// A wl_end. `why`: StackWalker::error().
[[nodiscard]] inline std::uint8_t end_of_walk(WalkEnd end, const Error& why) {
  switch (end) {
    case WalkEnd::kComplete: return WL_END_COMPLETE;
    case WalkEnd::kGuessed: return WL_END_GUESSED;
    case WalkEnd::kChained: return WL_END_CHAINED;
    case WalkEnd::kNoModule: return WL_END_NO_MAPPING;
    case WalkEnd::kNoRow: return WL_END_BAD_FRAME_POINTER;  // nor any row, nor code that could be followed
    case WalkEnd::kUnreadable: return WL_END_UNREADABLE_STACK;
    case WalkEnd::kLost: return WL_END_REGISTER_LOST;
    case WalkEnd::kNoProgress: return WL_END_NO_PROGRESS;
    case WalkEnd::kBadRow:
      // Managed code is described in the memory of its process, which may have ended meanwhile.
      return why.code == ErrorCode::kUnreadable || why.code == ErrorCode::kSystem ? WL_END_NO_CODE
                                                                                  : WL_END_UNSUPPORTED_EXPRESSION;
    case WalkEnd::kLimit: return WL_END_DEPTH;
    case WalkEnd::kForeign: return WL_END_OTHER_MACHINE;
    case WalkEnd::kBudget:  // the agent sets none
    case WalkEnd::kRunning: break;
  }
  return WL_END_INTERNAL;
}

}  // namespace windlass::profile
