// Where a return address of 0 is the mark of a thread's outermost frame, and where it is whatever the stack holds.
#pragma once

#include <cstdint>

#include "source/unwind_source.h"

namespace windlass::source {

// Does a return address of 0 that is read where the row at `address` has it prove that there is no caller? Only in a
// function whose rows begin with what a call leaves on the stack. Unwind information that begins with a frame already
// there is of code that is jumped into, and what that was true for need not be so each time: LuaJIT's interpreter has
// one row for all of it, also where compiled traces leave by another frame. True where there is no row, whose end
// somebody else has to prove, and for Windows, which ends its stacks so.
[[nodiscard]] bool zero_ends_stack(const UnwindSource& source, std::uint64_t address);

}  // namespace windlass::source
