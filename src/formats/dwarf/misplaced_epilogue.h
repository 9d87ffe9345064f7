// What Mono's compiler says ahead of time of epilogues: mono/mini/mini-amd64.c counts the addresses of their CFA
// instructions from the epilogue's own begin, not from the function's. So their rows follow right behind those of the
// prologue, in the middle of the function: registers are said to have been restored that are still saved, and at one
// byte the frame to be gone.
#pragma once

#include "formats/dwarf/cfi.h"

namespace windlass::dwarf {

// The FDE's instructions up to that epilogue's, DW_CFA_remember_state to DW_CFA_restore_state; all of them where there
// is none. It is known by its last row: it is said to be a `ret` (CFA = rsp + 8, of one byte), and the code there is
// something else. Needs section.text; x86-64. No allocation, linear in the instructions.
[[nodiscard]] ByteView without_misplaced_epilogue(const CfiSection& section, const Fde& fde);

}  // namespace windlass::dwarf
