#include "table/trace_expression.h"

#include <cstring>

namespace windlass::table {

namespace {

// DWARF 5 section 7.7.1.
enum Operation : std::uint8_t {
  kDeref = 0x06,
  kConst1u = 0x08,
  kAnd = 0x1a,
  kPlus = 0x22,
  kPlusUconst = 0x23,
  kShl = 0x24,
  kGe = 0x2a,
  kLit0 = 0x30,
  kLit31 = 0x4f,
  kBreg0 = 0x70,
  kBreg31 = 0x8f,
  kBregx = 0x92,
};

bool read_breg(ByteCursor& cursor, std::uint64_t& reg, std::int64_t& offset) {
  const auto operation = cursor.read<std::uint8_t>();
  if (!operation) return false;
  if (*operation == kBregx) {
    const auto number = cursor.uleb();
    if (!number) return false;
    reg = *number;
  } else if (*operation >= kBreg0 && *operation <= kBreg31) {
    reg = *operation - std::uint64_t{kBreg0};
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
  if (op[0] != kLit0 + 15 || op[1] != kAnd || op[2] < kLit0 || op[2] > kLit31) return false;
  threshold = static_cast<std::uint8_t>(op[2] - kLit0);
  return op[3] == kGe && op[4] == kLit0 + 3 && op[5] == kShl && op[6] == kPlus;
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
  const auto operation = *cursor.read<std::uint8_t>();
  if (operation != kDeref && operation != kPlusUconst) return {};
  if (operation == kDeref) {
    simple.kind = Kind::kLoad;
    if (cursor.at_end()) return simple;
    if (*cursor.read<std::uint8_t>() != kPlusUconst) return {};
  }
  const auto addend = cursor.uleb();
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
