// Backtraces by a walk with all registers.
#pragma once

#include "windlass/walk.h"

namespace windlass::walk {

// Of a walk that writes there.
[[nodiscard]] inline WalkOptions options_for(const std::uint64_t* pcs, std::size_t max) {
  WalkOptions options;
  options.written_begin = reinterpret_cast<std::uint64_t>(pcs);
  options.written_end = options.written_begin + max * sizeof *pcs;
  return options;
}

// Writes the pcs from the walker's frame outwards, at most `max` (not 0); returns how many, and why it ended in `end`
// if that is not null. Signal-safe.
[[nodiscard]] std::size_t whole_walk(StackWalker& walker, std::uint64_t* pcs, std::size_t max, WalkEnd* end);

}  // namespace windlass::walk
