// x86-64 instructions, decoded by Zydis. Code is followed several times, and decoding takes most of the time: the last
// instructions are kept.
#pragma once

#include <Zydis/Zydis.h>

#include <cstdint>

#include "flow/code_reader.h"

namespace windlass::flow {

// What is used of a ZydisDecodedOperand, by the same names.
struct X86RegisterOperand {
  ZydisRegister value;
};
struct X86Displacement {
  bool has_displacement;
  std::int64_t value;
};
struct X86MemoryOperand {
  ZydisRegister segment, base, index;
  std::uint8_t scale;
  X86Displacement disp;
};
union X86Constant {
  std::uint64_t u;
  std::int64_t s;
};
struct X86ImmediateOperand {
  bool is_signed;
  X86Constant value;
};
struct X86Operand {
  ZydisOperandType type;
  std::uint16_t size;  // bits
  ZydisOperandActions actions;
  union {
    X86RegisterOperand reg;
    X86MemoryOperand mem;
    X86ImmediateOperand imm;
  };
};

// And of a ZydisDecodedInstruction.
struct X86Instruction {
  ZydisMnemonic mnemonic;
  ZydisInstructionCategory category;
  std::uint8_t length, operand_count, operand_width, address_width;
  X86Operand operands[ZYDIS_MAX_OPERAND_COUNT];
};

class X86Decoder {
 public:
  X86Decoder();
  // The instruction at `pc`; null: there is none. Valid until the next call. Signal-safe, constant time.
  const X86Instruction* decode(CodeReader& code, std::uint64_t pc);

 private:
  static constexpr unsigned kKeptBits = 11, kKept = 1U << kKeptBits;
  // The bytes that were decoded, and how many. They alone say what the instruction is.
  struct Key {
    std::uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH];
    std::uint8_t size;
  };

  ZydisDecoder decoder_;
  Key keys_[kKept];  // a size of 0: none
  X86Instruction kept_[kKept];
};

}  // namespace windlass::flow
