#include "formats/dwarf/misplaced_epilogue.h"

#include <algorithm>
#include <span>

#include "formats/dwarf/instructions.h"

namespace windlass::dwarf {

ByteView without_misplaced_epilogue(const CfiSection& section, const Fde& fde) {
  constexpr std::uint8_t kRet = 0xc3;
  const std::span bytes(fde.instructions.u8(), fde.instructions.size());
  if (std::ranges::find(bytes, DW_CFA_remember_state) == bytes.end()) return fde.instructions;  // nearly always
  CfaInstructionReader reader(section, *fde.cie, fde.instructions, fde.begin);
  std::uint64_t location = fde.begin;
  constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  std::uint64_t remembered = kNowhere;  // where in the instructions
  std::uint64_t gone = kNowhere;        // where in the code the frame is
  while (!reader.at_end()) {
    const std::uint64_t at = reader.position();
    const auto instruction = reader.next();
    if (!instruction) break;
    if (instruction->has_location) location = instruction->location;
    switch (instruction->opcode) {
      case DW_CFA_remember_state: remembered = at, gone = kNowhere; break;
      case DW_CFA_def_cfa:
        if (instruction->reg == x86_64::kRsp && instruction->offset == 8) gone = location;
        break;
      case DW_CFA_restore_state: {
        if (remembered == kNowhere || gone == kNowhere || location - gone != 1) break;
        const auto code = section.text.at<std::uint8_t>(gone - section.text_address);
        if (code && *code != kRet) return *fde.instructions.sub(0, remembered);
        break;
      }
      default: break;
    }
  }
  return fde.instructions;
}

}  // namespace windlass::dwarf
