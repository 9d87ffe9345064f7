#include "flow/stack_effect.h"

#include <Zydis/Zydis.h>

#include <optional>

#include "base/registers.h"
#include "base/x86_64_operand.h"
#include "flow/plain_instruction.h"
#include "formats/winx64/instruction_length.h"

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

std::optional<StackEffect> effect_of(Kind kind, ByteView code, std::size_t length) {
  if (code.size() < length) return std::nullopt;
  StackEffect effect;
  effect.kind = kind;
  effect.length = static_cast<std::uint8_t>(length);
  return effect;
}
std::int64_t number_at(ByteView code, std::size_t at, std::size_t size) {
  return size == 1 ? *code.at<std::int8_t>(at) : *code.at<std::int32_t>(at);
}

// Direct calls and jumps, and returns, by their encoding alone: a decoder takes ten times as long. Intel SDM 2,
// appendix A.
std::optional<StackEffect> transfer(ByteView code, std::uint64_t address) {
  const std::uint8_t first = code.u8()[0], second = code.size() > 1 ? code.u8()[1] : std::uint8_t{0};
  const auto jump = [&](Kind kind, std::size_t opcode, std::size_t distance) {
    auto effect = effect_of(kind, code, opcode + distance);
    if (effect)
      effect->target = address + effect->length + static_cast<std::uint64_t>(number_at(code, opcode, distance));
    return effect;
  };
  if (first == 0xe8) return effect_of(Kind::kCall, code, 5);
  if (first == 0xe9) return jump(Kind::kJump, 1, 4);
  if (first == 0xeb) return jump(Kind::kJump, 1, 1);
  if ((first & 0xf0) == 0x70) return jump(Kind::kBranch, 1, 1);
  if (first == 0x0f && (second & 0xf0) == 0x80) return jump(Kind::kBranch, 2, 4);
  if (first == 0xc3 || first == 0xcc) return effect_of(Kind::kReturn, code, 1);
  return std::nullopt;
}

// What 0xff at `at` begins, likewise.
std::optional<StackEffect> group_5(ByteView code, std::size_t at) {
  if (code.size() < at + 2) return std::nullopt;
  const std::size_t length = winx64::instruction_length(code);
  if (length == 0) return std::nullopt;
  const bool memory = code.u8()[at + 1] < 0xc0;
  switch (code.u8()[at + 1] >> 3 & 7) {
    case 0:
    case 1: return memory ? effect_of(Kind::kNone, code, length) : std::nullopt;  // inc, dec
    case 2: return effect_of(Kind::kCall, code, length);
    case 4: return effect_of(Kind::kJump, code, length);
    default: return std::nullopt;
  }
}

std::optional<StackEffect> moved(Kind kind, ByteView code, std::size_t length, std::int64_t delta, unsigned encoded) {
  auto effect = effect_of(kind, code, length);
  if (effect) effect->delta = delta, effect->reg = x86_64::dwarf_number(encoded);
  return effect;
}

constexpr unsigned kRspNumber = 4;

// push, pop, and what 0xff begins, likewise.
std::optional<StackEffect> push_or_pop(ByteView code) {
  const std::uint8_t* bytes = code.u8();
  const std::size_t at = (bytes[0] & 0xf0) == 0x40 ? 1 : 0;
  if (code.size() < at + 1) return std::nullopt;
  const unsigned opcode = bytes[at], reg = (at != 0 ? bytes[0] & 1U : 0U) << 3 | (opcode & 7);
  if ((opcode & 0xf8) == 0x50) return moved(Kind::kPush, code, at + 1, -8, reg);
  if ((opcode & 0xf8) == 0x58 && reg != kRspNumber) return moved(Kind::kPop, code, at + 1, 8, reg);
  if (opcode == 0x6a) return moved(Kind::kMove, code, at + 2, -8, 0);
  if (opcode == 0x68) return moved(Kind::kMove, code, at + 5, -8, 0);
  return opcode == 0xff ? group_5(code, at) : std::nullopt;
}

// Additions to rsp, and moves to it, likewise.
std::optional<StackEffect> change_of_rsp(ByteView code) {
  const std::uint8_t* bytes = code.u8();
  if (code.size() < 3 || (bytes[0] & 0xf8) != 0x48) return std::nullopt;  // REX.W
  const unsigned rex = bytes[0], opcode = bytes[1], modrm = bytes[2];
  const unsigned reg = (rex & 4) << 1 | (modrm >> 3 & 7), rm = (rex & 1) << 3 | (modrm & 7);
  const bool registers = modrm >= 0xc0;
  if (opcode == 0x89 && registers && rm == kRspNumber) return moved(Kind::kSet, code, 3, 0, reg);
  if (opcode == 0x8b && registers && reg == kRspNumber) return moved(Kind::kSet, code, 3, 0, rm);
  if (opcode == 0x8b && reg == kRspNumber) {
    const std::size_t length = winx64::instruction_length(code);
    return length != 0 ? effect_of(Kind::kUnknown, code, length) : std::nullopt;
  }
  const bool arithmetic = (opcode == 0x83 || opcode == 0x81) && (modrm == 0xc4 || modrm == 0xec);  // add, sub
  const bool lea = opcode == 0x8d && (modrm == 0x64 || modrm == 0xa4) && code.size() > 3 && bytes[3] == 0x24;
  if (rex != 0x48 || (!arithmetic && !lea)) return std::nullopt;
  const std::size_t at = lea ? 4 : 3, size = opcode == 0x83 || modrm == 0x64 ? 1 : 4;
  if (code.size() < at + size) return std::nullopt;
  const std::int64_t by = number_at(code, at, size);
  return moved(Kind::kMove, code, at + size, arithmetic && modrm == 0xec ? -by : by, 0);
}

std::optional<StackEffect> by_encoding(ByteView code, std::uint64_t address) {
  if (code.empty()) return std::nullopt;
  if (auto effect = transfer(code, address)) return effect;
  if (auto effect = push_or_pop(code)) return effect;
  if (auto effect = change_of_rsp(code)) return effect;
  const std::size_t length = nop_length(code);
  return length != 0 ? effect_of(Kind::kNone, code, length) : std::nullopt;
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
