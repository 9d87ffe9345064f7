// Backtraces by a walk with all registers.
#pragma once

#include "windlass/walk.h"

namespace windlass::walk {

// Writes the pcs from the walker's frame outwards, at most `max` (not 0); returns how many, and why it ended in `end`
// if that is not null. Signal-safe.
[[nodiscard]] std::size_t whole_walk(StackWalker& walker, std::uint64_t* pcs, std::size_t max, WalkEnd* end);

}  // namespace windlass::walk
