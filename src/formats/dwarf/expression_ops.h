// The operations of DWARF expressions and what follows each: DWARF 5 section 7.7.1 and GNU's extensions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace windlass::dwarf {

enum class OperandKind : std::uint8_t { kNone, kU1, kS1, kU2, kS2, kU4, kS4, kU8, kUleb, kSleb, kBlock, kBlock1 };

// X(name, number, first operand, second operand). DW_OP_addr is as wide as an address: 8 bytes unless the reader is
// told otherwise. Offsets into debugging information are read as 32-bit DWARF, because a frame section does not tell
// the format.
// clang-format off
#define WINDLASS_EXPRESSION_OPS(X) \
  X(addr, 0x03, kU8, kNone) \
  X(deref, 0x06, kNone, kNone) \
  X(const1u, 0x08, kU1, kNone) \
  X(const1s, 0x09, kS1, kNone) \
  X(const2u, 0x0a, kU2, kNone) \
  X(const2s, 0x0b, kS2, kNone) \
  X(const4u, 0x0c, kU4, kNone) \
  X(const4s, 0x0d, kS4, kNone) \
  X(const8u, 0x0e, kU8, kNone) \
  X(const8s, 0x0f, kU8, kNone) \
  X(constu, 0x10, kUleb, kNone) \
  X(consts, 0x11, kSleb, kNone) \
  X(dup, 0x12, kNone, kNone) \
  X(drop, 0x13, kNone, kNone) \
  X(over, 0x14, kNone, kNone) \
  X(pick, 0x15, kU1, kNone) \
  X(swap, 0x16, kNone, kNone) \
  X(rot, 0x17, kNone, kNone) \
  X(xderef, 0x18, kNone, kNone) \
  X(abs, 0x19, kNone, kNone) \
  X(and, 0x1a, kNone, kNone) \
  X(div, 0x1b, kNone, kNone) \
  X(minus, 0x1c, kNone, kNone) \
  X(mod, 0x1d, kNone, kNone) \
  X(mul, 0x1e, kNone, kNone) \
  X(neg, 0x1f, kNone, kNone) \
  X(not, 0x20, kNone, kNone) \
  X(or, 0x21, kNone, kNone) \
  X(plus, 0x22, kNone, kNone) \
  X(plus_uconst, 0x23, kUleb, kNone) \
  X(shl, 0x24, kNone, kNone) \
  X(shr, 0x25, kNone, kNone) \
  X(shra, 0x26, kNone, kNone) \
  X(xor, 0x27, kNone, kNone) \
  X(bra, 0x28, kS2, kNone) \
  X(eq, 0x29, kNone, kNone) \
  X(ge, 0x2a, kNone, kNone) \
  X(gt, 0x2b, kNone, kNone) \
  X(le, 0x2c, kNone, kNone) \
  X(lt, 0x2d, kNone, kNone) \
  X(ne, 0x2e, kNone, kNone) \
  X(skip, 0x2f, kS2, kNone) \
  X(regx, 0x90, kUleb, kNone) \
  X(fbreg, 0x91, kSleb, kNone) \
  X(bregx, 0x92, kUleb, kSleb) \
  X(piece, 0x93, kUleb, kNone) \
  X(deref_size, 0x94, kU1, kNone) \
  X(xderef_size, 0x95, kU1, kNone) \
  X(nop, 0x96, kNone, kNone) \
  X(push_object_address, 0x97, kNone, kNone) \
  X(call2, 0x98, kU2, kNone) \
  X(call4, 0x99, kU4, kNone) \
  X(call_ref, 0x9a, kU4, kNone) \
  X(form_tls_address, 0x9b, kNone, kNone) \
  X(call_frame_cfa, 0x9c, kNone, kNone) \
  X(bit_piece, 0x9d, kUleb, kUleb) \
  X(implicit_value, 0x9e, kBlock, kNone) \
  X(stack_value, 0x9f, kNone, kNone) \
  X(implicit_pointer, 0xa0, kU4, kSleb) \
  X(addrx, 0xa1, kUleb, kNone) \
  X(constx, 0xa2, kUleb, kNone) \
  X(entry_value, 0xa3, kBlock, kNone) \
  X(const_type, 0xa4, kUleb, kBlock1) \
  X(regval_type, 0xa5, kUleb, kUleb) \
  X(deref_type, 0xa6, kU1, kUleb) \
  X(xderef_type, 0xa7, kU1, kUleb) \
  X(convert, 0xa8, kUleb, kNone) \
  X(reinterpret, 0xa9, kUleb, kNone) \
  X(GNU_push_tls_address, 0xe0, kNone, kNone) \
  X(GNU_uninit, 0xf0, kNone, kNone) \
  X(GNU_implicit_pointer, 0xf2, kU4, kSleb) \
  X(GNU_entry_value, 0xf3, kBlock, kNone) \
  X(GNU_const_type, 0xf4, kUleb, kBlock1) \
  X(GNU_regval_type, 0xf5, kUleb, kUleb) \
  X(GNU_deref_type, 0xf6, kU1, kUleb) \
  X(GNU_convert, 0xf7, kUleb, kNone) \
  X(GNU_reinterpret, 0xf9, kUleb, kNone) \
  X(GNU_parameter_ref, 0xfa, kU4, kNone) \
  X(GNU_addr_index, 0xfb, kUleb, kNone) \
  X(GNU_const_index, 0xfc, kUleb, kNone) \
  X(GNU_variable_value, 0xfd, kU4, kNone)
// clang-format on

enum ExpressionOpcode : std::uint8_t {
#define WINDLASS_OP_ENUM(name, number, first, second) DW_OP_##name = (number),
  WINDLASS_EXPRESSION_OPS(WINDLASS_OP_ENUM)
#undef WINDLASS_OP_ENUM
      DW_OP_lit0 = 0x30,
  DW_OP_lit31 = 0x4f,
  DW_OP_reg0 = 0x50,
  DW_OP_reg31 = 0x6f,
  DW_OP_breg0 = 0x70,
  DW_OP_breg31 = 0x8f,
};

struct OpDescription {
  std::string_view name;  // empty: no such operation
  OperandKind first = OperandKind::kNone;
  OperandKind second = OperandKind::kNone;
};

// The names of the three families of 32, "DW_OP_lit0" to "DW_OP_breg31".
struct FamilyNames {
  char text[3][32][13] = {};
  std::uint8_t length[3][32] = {};
};

consteval FamilyNames make_family_names() {
  FamilyNames names;
  constexpr std::string_view kPrefixes[] = {"DW_OP_lit", "DW_OP_reg", "DW_OP_breg"};
  for (int family = 0; family < 3; ++family) {
    for (int i = 0; i < 32; ++i) {
      std::uint8_t length = 0;
      for (const char c : kPrefixes[family]) names.text[family][i][length++] = c;
      if (i >= 10) names.text[family][i][length++] = static_cast<char>('0' + i / 10);
      names.text[family][i][length++] = static_cast<char>('0' + i % 10);
      names.length[family][i] = length;
    }
  }
  return names;
}

inline constexpr FamilyNames kFamilyNames = make_family_names();

consteval std::array<OpDescription, 256> make_expression_ops() {
  using enum OperandKind;
  std::array<OpDescription, 256> ops{};
#define WINDLASS_OP_ROW(name, number, first, second) ops[number] = OpDescription{"DW_OP_" #name, first, second};
  WINDLASS_EXPRESSION_OPS(WINDLASS_OP_ROW)
#undef WINDLASS_OP_ROW
  for (int family = 0; family < 3; ++family) {
    const OperandKind operand = family == 2 ? kSleb : kNone;
    for (int i = 0; i < 32; ++i)
      ops[0x30 + family * 32 + i] = {{kFamilyNames.text[family][i], kFamilyNames.length[family][i]}, operand, kNone};
  }
  return ops;
}

inline constexpr std::array<OpDescription, 256> kExpressionOps = make_expression_ops();

}  // namespace windlass::dwarf
