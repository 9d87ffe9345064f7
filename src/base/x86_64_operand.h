// The registers of Zydis's operands by their DWARF numbers.
#pragma once

#include <Zydis/Zydis.h>

namespace windlass::x86_64 {

// DWARF number of the 64-bit register that contains `reg`; kNoDwarfNumber for anything else.
inline constexpr unsigned kNoDwarfNumber = 17;
[[nodiscard]] unsigned dwarf_number(ZydisRegister reg);

}  // namespace windlass::x86_64
