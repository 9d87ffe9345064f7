#include "exactness/instruction.h"

#include <Zydis/Zydis.h>

namespace windlass::exactness {
namespace {

Instruction decode(const Tracee& tracee, std::uint64_t pc) {
  std::uint8_t bytes[16];
  std::size_t size = sizeof bytes;
  while (size > 0 && !tracee.read(pc, bytes, size)) --size;  // code may end at a page nobody mapped
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  ZydisDecodedInstruction decoded;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  Instruction result;
  if (size == 0 || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes, size, &decoded, operands))) return result;
  result.length = decoded.length;
  result.mnemonic = ZydisMnemonicGetString(decoded.mnemonic);
  constexpr auto kRepeats = ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;
  result.repeats = (decoded.attributes & kRepeats) != 0;
  using Kind = Instruction::Kind;
  if (decoded.mnemonic == ZYDIS_MNEMONIC_SYSCALL) {
    result.kind = Kind::kSystemCall;
    return result;
  }
  switch (decoded.meta.category) {
    case ZYDIS_CATEGORY_CALL: result.kind = Kind::kCall; break;
    case ZYDIS_CATEGORY_RET: result.kind = Kind::kReturn; break;
    case ZYDIS_CATEGORY_COND_BR: result.kind = Kind::kJump; break;
    case ZYDIS_CATEGORY_UNCOND_BR:
      result.kind = operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? Kind::kJump : Kind::kIndirectJump;
      break;
    default: break;
  }
  return result;
}

}  // namespace

const Instruction& InstructionCache::at(const Tracee& tracee, std::uint64_t pc) {
  const auto known = cache_.find(pc);
  if (known != cache_.end()) return known->second;
  return cache_.emplace(pc, decode(tracee, pc)).first->second;
}

}  // namespace windlass::exactness
