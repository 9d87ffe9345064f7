#include "base/x86_64_operand.h"

#include "base/registers.h"

namespace windlass {

unsigned x86_64::dwarf_number(ZydisRegister reg) {
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  if (whole < ZYDIS_REGISTER_RAX || whole > ZYDIS_REGISTER_R15) return kNoDwarfNumber;
  return kDwarfNumbers[whole - ZYDIS_REGISTER_RAX];
}

}  // namespace windlass
