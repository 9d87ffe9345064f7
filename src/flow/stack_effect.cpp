#include "flow/stack_effect.h"

#include <Zydis/Zydis.h>

#include <optional>

#include "base/registers.h"
#include "base/x86_64_operand.h"
#include "flow/plain_instruction.h"

namespace windlass::flow {
namespace {

using Kind = StackEffect::Kind;

struct Mode {
  ZydisDecoder decoder;
  ZydisRegister sp;
  unsigned word;  // bits
};

Mode make_mode(Architecture architecture) {
  Mode mode{{}, ZYDIS_REGISTER_RSP, 64};
  if (architecture == Architecture::kI386) {
    mode.sp = ZYDIS_REGISTER_ESP;
    mode.word = 32;
    ZydisDecoderInit(&mode.decoder, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
  } else {
    ZydisDecoderInit(&mode.decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }
  return mode;
}

const Mode& mode_of(Architecture architecture) {
  static const Mode wide = make_mode(Architecture::kX86_64), narrow = make_mode(Architecture::kI386);
  return architecture == Architecture::kI386 ? narrow : wide;
}

// DWARF number of a register as wide as a word.
RegisterNumber number_of(const Mode& mode, ZydisRegister reg) {
  if (mode.word == 64) return static_cast<RegisterNumber>(x86_64::dwarf_number(reg));
  // i386 numbers its registers as it encodes them (psABI table 2.14).
  return static_cast<RegisterNumber>(reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_EDI ? reg - ZYDIS_REGISTER_EAX
                                                                                            : x86_64::kNoDwarfNumber);
}

bool is_sp(const Mode& mode, const ZydisDecodedOperand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && operand.reg.value == mode.sp;
}

bool writes_sp(const Mode& mode, const ZydisDecodedInstruction& info, const ZydisDecodedOperand* operands) {
  for (unsigned i = 0; i < info.operand_count; ++i) {
    const ZydisDecodedOperand& operand = operands[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0 &&
        ZydisRegisterGetLargestEnclosing(mode.decoder.machine_mode, operand.reg.value) == mode.sp)
      return true;
  }
  return false;
}

// sp = sp + delta
bool is_move(const Mode& mode, const ZydisDecodedInstruction& info, const ZydisDecodedOperand* operands,
             std::int64_t& delta) {
  const bool immediate = info.operand_count_visible == 2 && operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  if (!is_sp(mode, operands[0])) return false;
  if (immediate && (info.mnemonic == ZYDIS_MNEMONIC_ADD || info.mnemonic == ZYDIS_MNEMONIC_SUB)) {
    delta = info.mnemonic == ZYDIS_MNEMONIC_ADD ? operands[1].imm.value.s : -operands[1].imm.value.s;
    return true;
  }
  const auto& memory = operands[1].mem;
  if (info.mnemonic != ZYDIS_MNEMONIC_LEA || memory.base != mode.sp || memory.index != ZYDIS_REGISTER_NONE)
    return false;
  delta = memory.disp.has_displacement ? memory.disp.value : 0;
  return true;
}

std::uint64_t direct_target(const ZydisDecodedInstruction& info, const ZydisDecodedOperand& operand,
                            std::uint64_t address) {
  if (operand.type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !operand.imm.is_relative) return 0;
  return address + info.length + operand.imm.value.u;
}

// Direct calls and jumps, calls by a word of the image, and returns by their encoding alone: a decoder takes ten times
// as long. Intel SDM 2, appendix A.
std::optional<StackEffect> by_encoding(ByteView code, std::uint64_t address) {
  const std::uint8_t first = code.at<std::uint8_t>(0).value_or(0), second = code.at<std::uint8_t>(1).value_or(0);
  const auto transfer = [&](Kind kind, std::size_t opcode, std::size_t distance) -> std::optional<StackEffect> {
    if (code.size() < opcode + distance) return std::nullopt;
    StackEffect effect;
    effect.kind = kind;
    effect.length = static_cast<std::uint8_t>(opcode + distance);
    const std::int64_t by = distance == 1   ? *code.at<std::int8_t>(opcode)
                            : distance == 4 ? *code.at<std::int32_t>(opcode)
                                            : 0;
    if (kind != Kind::kCall && distance != 0) effect.target = address + effect.length + static_cast<std::uint64_t>(by);
    return effect;
  };
  if (first == 0xe8) return transfer(Kind::kCall, 1, 4);
  if (first == 0xe9) return transfer(Kind::kJump, 1, 4);
  if (first == 0xeb) return transfer(Kind::kJump, 1, 1);
  if ((first & 0xf0) == 0x70) return transfer(Kind::kBranch, 1, 1);
  if (first == 0x0f && (second & 0xf0) == 0x80) return transfer(Kind::kBranch, 2, 4);
  if (first == 0xff && second == 0x15) return transfer(Kind::kCall, 2, 4);  // call [rip + n]
  if (first == 0xc3) return transfer(Kind::kReturn, 1, 0);
  return std::nullopt;
}

}  // namespace

Expected<StackEffect> stack_effect(ByteView code, std::uint64_t address, Architecture architecture) {
  StackEffect effect;
  if (architecture == Architecture::kX86_64) {
    effect.length = static_cast<std::uint8_t>(plain_length(code));
    if (effect.length != 0) return effect;
    if (const auto known = by_encoding(code, address)) return *known;
  }
  const Mode& mode = mode_of(architecture);
  ZydisDecodedInstruction info;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&mode.decoder, code.data(), code.size(), &info, operands)))
    return fail(ErrorCode::kMalformed, "not an instruction", address);
  effect.length = info.length;
  switch (info.meta.category) {
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_INTERRUPT: effect.kind = Kind::kReturn; return effect;
    case ZYDIS_CATEGORY_CALL: effect.kind = Kind::kCall; return effect;
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_UNCOND_BR:
      effect.kind = info.meta.category == ZYDIS_CATEGORY_COND_BR ? Kind::kBranch : Kind::kJump;
      effect.target = direct_target(info, operands[0], address);
      return effect;
    default: break;
  }
  if (info.mnemonic == ZYDIS_MNEMONIC_UD2 || info.mnemonic == ZYDIS_MNEMONIC_HLT) effect.kind = Kind::kReturn;
  if (!writes_sp(mode, info, operands)) return effect;
  effect.kind = Kind::kUnknown;
  const bool whole = info.operand_width == mode.word;
  const std::int64_t word = mode.word / 8;
  if (info.meta.category == ZYDIS_CATEGORY_PUSH && whole) {
    effect.kind = Kind::kMove;
    effect.delta = -word;
    if (operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER) {
      effect.kind = Kind::kPush;
      effect.reg = number_of(mode, operands[0].reg.value);
    }
  } else if (info.meta.category == ZYDIS_CATEGORY_POP && whole && !is_sp(mode, operands[0])) {
    effect.kind = Kind::kMove;
    effect.delta = word;
    if (operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER) {
      effect.kind = Kind::kPop;
      effect.reg = number_of(mode, operands[0].reg.value);
    }
  } else if (is_move(mode, info, operands, effect.delta)) {
    effect.kind = Kind::kMove;
  } else if (info.mnemonic == ZYDIS_MNEMONIC_MOV && is_sp(mode, operands[0]) &&
             operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER) {
    effect.kind = Kind::kSet;
    effect.reg = number_of(mode, operands[1].reg.value);
  }
  return effect;
}

}  // namespace windlass::flow
