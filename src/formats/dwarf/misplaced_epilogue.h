// Wrong CFA instructions of Mono's compiler. mono/mini/mini-amd64.c, compiling ahead of time, counts the addresses of
// an epilogue's instructions from the begin of the epilogue, not from that of the function. So the rows of the epilogue
// follow right behind those of the prologue, in the middle of the function. They say that registers have been restored
// which are still saved. At one byte they say that the frame is gone.
#pragma once

#include "formats/dwarf/cfi.h"

namespace windlass::dwarf {

// The FDE's instructions up to DW_CFA_remember_state of a misplaced epilogue; all instructions if there is none. An
// epilogue is misplaced if its last row is that of a `ret` (CFA = rsp + 8, one byte long) and the code there is another
// instruction. Needs section.text. x86-64. No allocation, linear in the instructions.
[[nodiscard]] ByteView without_misplaced_epilogue(const CfiSection& section, const Fde& fde);

}  // namespace windlass::dwarf
