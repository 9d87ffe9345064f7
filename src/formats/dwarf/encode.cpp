#include "formats/dwarf/encode.h"

#include "base/leb128.h"
#include "formats/dwarf/constants.h"

namespace windlass::dwarf {
namespace {

using Kind = FrameInstruction::Kind;

void put_little(Block& block, std::uint32_t value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) block.push_back(static_cast<std::uint8_t>(value >> 8 * i));
}

void put_operation(Block& block, CfaOpcode opcode, RegisterNumber reg) {
  block.push_back(opcode);
  put_uleb(block, reg);
}

// The packed form for the first 64 registers.
void put_packed(Block& block, CfaOpcode packed, CfaOpcode extended, RegisterNumber reg) {
  if (reg < 0x40)
    block.push_back(static_cast<std::uint8_t>(packed | reg));
  else
    put_operation(block, extended, reg);
}

void put_block(Block& block, const Block& expression) {
  put_uleb(block, expression.size());
  block.insert(block.end(), expression.begin(), expression.end());
}

void put_offset(Block& block, const FrameInstruction& instruction, const FrameFactors& factors) {
  const std::int32_t factored = instruction.offset / factors.data;
  if (factored < 0)
    put_operation(block, DW_CFA_offset_extended_sf, instruction.reg);
  else
    put_packed(block, DW_CFA_offset, DW_CFA_offset_extended, instruction.reg);
  factored < 0 ? put_sleb(block, factored) : put_uleb(block, static_cast<std::uint32_t>(factored));
}

void put_value_offset(Block& block, const FrameInstruction& instruction, const FrameFactors& factors) {
  const std::int32_t factored = instruction.offset / factors.data;
  put_operation(block, factored < 0 ? DW_CFA_val_offset_sf : DW_CFA_val_offset, instruction.reg);
  factored < 0 ? put_sleb(block, factored) : put_uleb(block, static_cast<std::uint32_t>(factored));
}

// The CFA's offset counts in bytes if it is not negative, else in units of the data alignment, of which program_of()
// makes no other.
void put_cfa(Block& block, const FrameInstruction& instruction, const FrameFactors& factors) {
  const bool negative = instruction.offset < 0;
  if (instruction.kind == Kind::kDefCfa)
    put_operation(block, negative ? DW_CFA_def_cfa_sf : DW_CFA_def_cfa, instruction.reg);
  else
    block.push_back(negative ? DW_CFA_def_cfa_offset_sf : DW_CFA_def_cfa_offset);
  negative ? put_sleb(block, instruction.offset / factors.data)
           : put_uleb(block, static_cast<std::uint32_t>(instruction.offset));
}

}  // namespace

void put_uleb(Block& block, std::uint64_t value) { put_uleb128(block, value); }

void put_sleb(Block& block, std::int64_t value) {
  for (; value < -0x40 || value > 0x3f; value >>= 7) block.push_back(static_cast<std::uint8_t>(value | 0x80));
  block.push_back(static_cast<std::uint8_t>(value & 0x7f));
}

Expected<void> put_advance(Block& block, std::uint32_t distance, const FrameFactors& factors, std::uint32_t where) {
  if (distance % factors.code != 0)
    return fail(ErrorCode::kUnsupported, "a row begins within an instruction", where, factors.code);
  const std::uint32_t delta = distance / factors.code;
  if (delta == 0) return {};
  if (delta < 0x40) {
    block.push_back(static_cast<std::uint8_t>(DW_CFA_advance_loc | delta));
  } else if (delta <= 0xff) {
    block.push_back(DW_CFA_advance_loc1);
    put_little(block, delta, 1);
  } else if (delta <= 0xffff) {
    block.push_back(DW_CFA_advance_loc2);
    put_little(block, delta, 2);
  } else {
    block.push_back(DW_CFA_advance_loc4);
    put_little(block, delta, 4);
  }
  return {};
}

void put_instruction(Block& block, const FrameInstruction& instruction, const FrameFactors& factors) {
  const RegisterNumber reg = instruction.reg;
  switch (instruction.kind) {
    case Kind::kDefCfa:
    case Kind::kDefCfaOffset: return put_cfa(block, instruction, factors);
    case Kind::kDefCfaRegister: return put_operation(block, DW_CFA_def_cfa_register, reg);
    case Kind::kCfaExpression: block.push_back(DW_CFA_def_cfa_expression); return put_block(block, instruction.block);
    case Kind::kOffset: return put_offset(block, instruction, factors);
    case Kind::kValueOffset: return put_value_offset(block, instruction, factors);
    case Kind::kRegister: put_operation(block, DW_CFA_register, reg); return put_uleb(block, instruction.source);
    case Kind::kUndefined: return put_operation(block, DW_CFA_undefined, reg);
    case Kind::kSameValue: return put_operation(block, DW_CFA_same_value, reg);
    case Kind::kRestore: return put_packed(block, DW_CFA_restore, DW_CFA_restore_extended, reg);
    case Kind::kExpression: put_operation(block, DW_CFA_expression, reg); return put_block(block, instruction.block);
    case Kind::kValueExpression:
      put_operation(block, DW_CFA_val_expression, reg);
      return put_block(block, instruction.block);
    case Kind::kRememberState: return block.push_back(DW_CFA_remember_state);
    case Kind::kRestoreState: return block.push_back(DW_CFA_restore_state);
    case Kind::kNegateRaState: return block.push_back(DW_CFA_GNU_window_save);
  }
}

}  // namespace windlass::dwarf
