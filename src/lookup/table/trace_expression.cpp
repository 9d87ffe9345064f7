#include "lookup/table/trace_expression.h"

#include <cstring>
#include <optional>

#include "formats/dwarf/expression_ops.h"

namespace windlass::table {

namespace {

bool read_breg(ByteCursor& cursor, std::uint64_t& reg, std::int64_t& offset) {
  const auto operation = cursor.read<std::uint8_t>();
  if (!operation) return false;
  if (*operation == dwarf::DW_OP_bregx) {
    const auto number = cursor.uleb();
    if (!number) return false;
    reg = *number;
  } else if (*operation >= dwarf::DW_OP_breg0 && *operation <= dwarf::DW_OP_breg31) {
    reg = *operation - std::uint64_t{dwarf::DW_OP_breg0};
  } else {
    return false;
  }
  const auto value = cursor.sleb();
  if (!value) return false;
  offset = *value;
  return true;
}

// What follows `breg7 8` in a lazy PLT: the second of its two pushes has happened from byte K of the 16-byte stub on.
bool read_plt(ByteCursor& cursor, std::uint8_t& threshold) {
  constexpr std::uint64_t kRip = 16;
  std::uint64_t reg = 0;
  std::int64_t offset = 0;
  if (!read_breg(cursor, reg, offset) || reg != kRip || offset != 0 || cursor.remaining() != 7) return false;
  const auto rest = cursor.bytes(7);
  const std::uint8_t* op = rest->u8();
  if (op[0] != dwarf::DW_OP_lit0 + 15 || op[1] != dwarf::DW_OP_and || op[2] < dwarf::DW_OP_lit0 ||
      op[2] > dwarf::DW_OP_lit31)
    return false;
  threshold = static_cast<std::uint8_t>(op[2] - dwarf::DW_OP_lit0);
  return op[3] == dwarf::DW_OP_ge && op[4] == dwarf::DW_OP_lit0 + 3 && op[5] == dwarf::DW_OP_shl &&
         op[6] == dwarf::DW_OP_plus;
}

// What is added to the value on the stack: `plus_uconst k`, or `litK; plus`.
std::optional<std::uint64_t> read_addend(ByteCursor& cursor) {
  const auto operation = cursor.read<std::uint8_t>();
  if (!operation) return std::nullopt;
  if (*operation == dwarf::DW_OP_plus_uconst) {
    const auto addend = cursor.uleb();
    return addend ? std::optional(*addend) : std::nullopt;
  }
  if (*operation < dwarf::DW_OP_lit0 || *operation > dwarf::DW_OP_lit31) return std::nullopt;
  const auto plus = cursor.read<std::uint8_t>();
  return plus && *plus == dwarf::DW_OP_plus ? std::optional<std::uint64_t>(*operation - dwarf::DW_OP_lit0)
                                            : std::nullopt;
}

}  // namespace

SimpleExpression recognise(ByteView expression) {
  using Kind = SimpleExpression::Kind;
  SimpleExpression simple;
  ByteCursor cursor(expression);
  if (!read_breg(cursor, simple.reg, simple.offset)) return {};
  if (cursor.at_end()) {
    simple.kind = Kind::kRegister;
    return simple;
  }
  ByteCursor plt = cursor;
  if (read_plt(plt, simple.argument)) {
    simple.kind = Kind::kPlt;
    return simple;
  }
  simple.argument = 0;
  ByteCursor load = cursor;
  if (*load.read<std::uint8_t>() == dwarf::DW_OP_deref) {
    simple.kind = Kind::kLoad;
    if (load.at_end()) return simple;
    cursor = load;
  }
  const auto addend = read_addend(cursor);
  if (!addend || *addend > 255 || !cursor.at_end()) return {};
  if (simple.kind == Kind::kLoad) {
    simple.argument = static_cast<std::uint8_t>(*addend);
  } else {
    simple.kind = Kind::kRegister;
    if (__builtin_add_overflow(simple.offset, static_cast<std::int64_t>(*addend), &simple.offset)) return {};
  }
  return simple;
}

}  // namespace windlass::table
