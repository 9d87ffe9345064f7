#include "formats/dwarf/expression.h"

#include <iterator>

#include <fmt/format.h>

#include "formats/dwarf/expression_ops.h"

namespace windlass::dwarf {
namespace {

using enum OperandKind;

const OpDescription* describe(std::uint8_t opcode) {
  const OpDescription& description = kExpressionOps[opcode];
  return description.name.empty() ? nullptr : &description;
}

template <typename T>
Expected<std::uint64_t> extended(ByteCursor& cursor) {
  const auto value = cursor.read<T>();
  if (!value) return Failure(value.error());
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(*value));
}

Expected<std::uint64_t> read_operand(ByteCursor& cursor, OperandKind kind, ExpressionOp& op) {
  switch (kind) {
    case kNone: return 0;
    case kU1: return extended<std::uint8_t>(cursor);
    case kS1: return extended<std::int8_t>(cursor);
    case kU2: return extended<std::uint16_t>(cursor);
    case kS2: return extended<std::int16_t>(cursor);
    case kU4: return extended<std::uint32_t>(cursor);
    case kS4: return extended<std::int32_t>(cursor);
    case kU8: return cursor.read<std::uint64_t>();
    case kUleb: return cursor.uleb();
    case kSleb: {
      const auto value = cursor.sleb();
      if (!value) return Failure(value.error());
      return static_cast<std::uint64_t>(*value);
    }
    case kBlock:
    case kBlock1: {
      const auto length = kind == kBlock ? cursor.uleb() : extended<std::uint8_t>(cursor);
      if (!length) return length;
      const auto block = cursor.bytes(*length);
      if (!block) return Failure(block.error());
      op.block = *block;
      return length;
    }
  }
  return 0;
}

bool is_in(std::uint8_t opcode, std::uint8_t first, std::uint8_t last) { return opcode >= first && opcode <= last; }

void append_op(std::string& out, const ExpressionOp& op, Architecture architecture) {
  const auto to = std::back_inserter(out);
  out += expression_op_name(op.opcode);
  const auto signed_first = static_cast<std::int64_t>(op.first);
  if (is_in(op.opcode, DW_OP_reg0, DW_OP_reg31)) {
    fmt::format_to(to, " ({})", register_text(architecture, op.opcode - DW_OP_reg0));
  } else if (is_in(op.opcode, DW_OP_breg0, DW_OP_breg31)) {
    fmt::format_to(to, " ({}): {}", register_text(architecture, op.opcode - DW_OP_breg0), signed_first);
  } else if (op.opcode == DW_OP_regx) {
    fmt::format_to(to, ": {} ({})", op.first, register_text(architecture, op.first));
  } else if (op.opcode == DW_OP_bregx) {
    fmt::format_to(to, ": {} ({}) {}", op.first, register_text(architecture, op.first),
                   static_cast<std::int64_t>(op.second));
  } else if (op.opcode == DW_OP_addr) {
    fmt::format_to(to, ": {:x}", op.first);
  } else {
    const OpDescription& description = kExpressionOps[op.opcode];
    const auto append = [&](OperandKind kind, std::uint64_t value, const char* before) {
      if (kind == kNone) return;
      if (kind == kS1 || kind == kS2 || kind == kS4 || kind == kSleb)
        fmt::format_to(to, "{}{}", before, static_cast<std::int64_t>(value));
      else
        fmt::format_to(to, "{}{}", before, value);
    };
    append(description.first, op.first, ": ");
    append(description.second, op.second, " ");
    if (!op.block.empty()) {
      out += ":";
      for (std::size_t i = 0; i < op.block.size(); ++i) fmt::format_to(to, " {:x}", op.block.u8()[i]);
    }
  }
}

}  // namespace

std::string_view expression_op_name(std::uint8_t opcode) { return kExpressionOps[opcode].name; }

Expected<ExpressionOp> ExpressionReader::next() {
  ExpressionOp op;
  op.offset = cursor_.position();
  const std::uint64_t origin = cursor_.origin();
  const auto opcode = cursor_.read<std::uint8_t>();
  if (!opcode) return Failure(opcode.error());
  op.opcode = *opcode;
  const OpDescription* description = describe(op.opcode);
  if (description == nullptr) return fail(ErrorCode::kMalformed, "unknown expression operation", origin, op.opcode);
  const bool is_narrow = op.opcode == DW_OP_addr && address_size_ == 4;
  const auto first = read_operand(cursor_, is_narrow ? kU4 : description->first, op);
  if (!first) return Failure(first.error());
  op.first = *first;
  const auto second = read_operand(cursor_, description->second, op);
  if (!second) return Failure(second.error());
  op.second = *second;
  return op;
}

void append_expression_text(std::string& out, ByteView expression, Architecture architecture) {
  ExpressionReader reader(expression, Registers::word_size(architecture));
  for (bool first = true; !reader.at_end(); first = false) {
    const auto op = reader.next();
    if (!first) out += "; ";
    if (!op) {
      out += "<error>";
      return;
    }
    append_op(out, *op, architecture);
  }
}

std::string expression_text(ByteView expression, Architecture architecture) {
  std::string text;
  append_expression_text(text, expression, architecture);
  return text;
}

}  // namespace windlass::dwarf
