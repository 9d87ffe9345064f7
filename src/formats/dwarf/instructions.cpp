#include "formats/dwarf/instructions.h"

#include <array>
#include <optional>

namespace windlass::dwarf {
namespace {

enum class OperandForm : std::uint8_t {
  kNone,
  kRegister,
  kSource,          // a second register
  kOffset,          // bytes
  kFactored,        // unsigned, times the data alignment factor
  kFactoredSigned,  // signed, times the data alignment factor
  kNegated,         // unsigned, times the data alignment factor, sign turned
  kDelta1,
  kDelta2,
  kDelta4,
  kDelta8,
  kAddress,
  kExpression,
};

struct Form {
  std::string_view name;
  OperandForm first = OperandForm::kNone;
  OperandForm second = OperandForm::kNone;
};

// Indexed by opcode; those with two high bits are taken apart before.
consteval std::array<Form, 0x40> make_forms() {
  using enum OperandForm;
  std::array<Form, 0x40> forms{};
  forms[DW_CFA_nop] = {"nop"};
  forms[DW_CFA_set_loc] = {"set_loc", kAddress};
  forms[DW_CFA_advance_loc1] = {"advance_loc1", kDelta1};
  forms[DW_CFA_advance_loc2] = {"advance_loc2", kDelta2};
  forms[DW_CFA_advance_loc4] = {"advance_loc4", kDelta4};
  forms[DW_CFA_MIPS_advance_loc8] = {"MIPS_advance_loc8", kDelta8};
  forms[DW_CFA_offset_extended] = {"offset_extended", kRegister, kFactored};
  forms[DW_CFA_offset_extended_sf] = {"offset_extended_sf", kRegister, kFactoredSigned};
  forms[DW_CFA_GNU_negative_offset_extended] = {"GNU_negative_offset_extended", kRegister, kNegated};
  forms[DW_CFA_restore_extended] = {"restore_extended", kRegister};
  forms[DW_CFA_undefined] = {"undefined", kRegister};
  forms[DW_CFA_same_value] = {"same_value", kRegister};
  forms[DW_CFA_register] = {"register", kRegister, kSource};
  forms[DW_CFA_remember_state] = {"remember_state"};
  forms[DW_CFA_restore_state] = {"restore_state"};
  forms[DW_CFA_def_cfa] = {"def_cfa", kRegister, kOffset};
  forms[DW_CFA_def_cfa_sf] = {"def_cfa_sf", kRegister, kFactoredSigned};
  forms[DW_CFA_def_cfa_register] = {"def_cfa_register", kRegister};
  forms[DW_CFA_def_cfa_offset] = {"def_cfa_offset", kOffset};
  forms[DW_CFA_def_cfa_offset_sf] = {"def_cfa_offset_sf", kFactoredSigned};
  forms[DW_CFA_def_cfa_expression] = {"def_cfa_expression", kExpression};
  forms[DW_CFA_expression] = {"expression", kRegister, kExpression};
  forms[DW_CFA_val_expression] = {"val_expression", kRegister, kExpression};
  forms[DW_CFA_val_offset] = {"val_offset", kRegister, kFactored};
  forms[DW_CFA_val_offset_sf] = {"val_offset_sf", kRegister, kFactoredSigned};
  forms[DW_CFA_GNU_args_size] = {"GNU_args_size", kOffset};
  forms[DW_CFA_GNU_window_save] = {"GNU_window_save"};
  forms[DW_CFA_AARCH64_negate_ra_state_with_pc] = {"AARCH64_negate_ra_state_with_pc"};
  return forms;
}

constexpr std::array<Form, 0x40> kForms = make_forms();

template <typename T>
Expected<std::uint64_t> widened(ByteCursor& cursor) {
  const auto value = cursor.read<T>();
  if (!value) return Failure(value.error());
  return *value;
}

std::int64_t factored(std::uint64_t value, std::int64_t factor) {
  return static_cast<std::int64_t>(value * static_cast<std::uint64_t>(factor));
}

class OperandReader {
 public:
  OperandReader(ByteCursor& cursor, std::int64_t data_alignment, CfaInstruction& out)
      : cursor_(cursor), data_alignment_(data_alignment), out_(out) {}

  // The delta of an advance, if that is what the operand is.
  Expected<std::optional<std::uint64_t>> read(OperandForm operand) {
    switch (operand) {
      case OperandForm::kNone:
      case OperandForm::kAddress: return std::nullopt;
      case OperandForm::kDelta1: return widened<std::uint8_t>(cursor_);
      case OperandForm::kDelta2: return widened<std::uint16_t>(cursor_);
      case OperandForm::kDelta4: return widened<std::uint32_t>(cursor_);
      case OperandForm::kDelta8: return widened<std::uint64_t>(cursor_);
      case OperandForm::kFactoredSigned: {
        const auto value = cursor_.sleb();
        if (!value) return Failure(value.error());
        out_.has_offset = true;
        out_.offset = factored(static_cast<std::uint64_t>(*value), data_alignment_);
        return std::nullopt;
      }
      default: break;
    }
    const auto value = cursor_.uleb();
    if (!value) return Failure(value.error());
    switch (operand) {
      case OperandForm::kRegister:
        out_.has_register = true;
        out_.reg = *value;
        break;
      case OperandForm::kSource:
        out_.has_source = true;
        out_.source = *value;
        break;
      case OperandForm::kExpression: {
        const auto block = cursor_.bytes(*value);
        if (!block) return Failure(block.error());
        out_.has_expression = true;
        out_.expression = *block;
        break;
      }
      default:
        out_.has_offset = true;
        out_.offset = operand == OperandForm::kOffset     ? static_cast<std::int64_t>(*value)
                      : operand == OperandForm::kFactored ? factored(*value, data_alignment_)
                                                          : factored(0 - *value, data_alignment_);
        break;
    }
    return std::nullopt;
  }

 private:
  ByteCursor& cursor_;
  std::int64_t data_alignment_;
  CfaInstruction& out_;
};

}  // namespace

Expected<void> CfaInstructionReader::move(CfaInstruction& instruction, std::uint64_t delta) {
  if (__builtin_mul_overflow(delta, cie_.code_alignment, &instruction.delta) ||
      __builtin_add_overflow(location_, instruction.delta, &location_))
    return fail(ErrorCode::kMalformed, "advance past the end of the address space", cursor_.origin(), delta);
  instruction.has_location = true;
  instruction.location = location_;
  return {};
}

Expected<CfaInstruction> CfaInstructionReader::next() {
  CfaInstruction out;
  const std::uint64_t origin = cursor_.origin();
  const auto opcode = cursor_.read<std::uint8_t>();
  if (!opcode) return Failure(opcode.error());
  out.opcode = *opcode & 0xc0;
  const std::uint8_t low = *opcode & 0x3f;
  OperandReader operands(cursor_, cie_.data_alignment, out);
  if (out.opcode == DW_CFA_advance_loc) {
    out.name = "advance_loc";
    if (const auto moved = move(out, low); !moved) return Failure(moved.error());
    return out;
  }
  if (out.opcode == DW_CFA_offset || out.opcode == DW_CFA_restore) {
    out.name = out.opcode == DW_CFA_offset ? "offset" : "restore";
    out.has_register = true;
    out.reg = low;
    if (out.opcode == DW_CFA_offset) {
      if (const auto read = operands.read(OperandForm::kFactored); !read) return Failure(read.error());
    }
    return out;
  }
  out.opcode = *opcode;
  const Form& form = kForms[*opcode];
  if (form.name.empty()) return fail(ErrorCode::kMalformed, "unknown CFA opcode", origin, *opcode);
  out.name = form.name;
  if (*opcode == DW_CFA_GNU_window_save && section_.architecture == Architecture::kAArch64)
    out.name = "AARCH64_negate_ra_state";
  for (const OperandForm operand : {form.first, form.second}) {
    const auto delta = operands.read(operand);
    if (!delta) return Failure(delta.error());
    if (!*delta) continue;
    if (const auto moved = move(out, **delta); !moved) return Failure(moved.error());
  }
  if (form.first == OperandForm::kAddress) {
    CfiSection bounded = section_;
    const std::uint64_t program_at = cursor_.view().origin() - section_.bytes.origin();
    bounded.bytes = ByteView(section_.bytes.data(), program_at + cursor_.view().size(), section_.bytes.origin());
    std::uint64_t position = program_at + cursor_.position();
    const auto target = read_encoded_pointer(bounded, position, cie_.fde_encoding, cie_.address_size, location_);
    if (!target) return Failure(target.error());
    cursor_ = ByteCursor(cursor_.view(), position - program_at);
    out.delta = target->value - location_;
    out.has_location = true;
    out.location = location_ = target->value;
  }
  return out;
}

}  // namespace windlass::dwarf
