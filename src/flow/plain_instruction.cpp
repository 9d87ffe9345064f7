#include "flow/plain_instruction.h"

#include <array>

namespace windlass::flow {
namespace {

// What an opcode writes, if it is known here, and how many bytes of a constant follow.
enum Form : std::uint8_t {
  kOther,
  kNothing,       // a comparison
  kRegister,      // ModR/M's reg
  kAddress,       // the same, and r/m is memory
  kOperand,       // ModR/M's r/m
  kOperandByte,   // the same, and a constant of 1 byte
  kOperandWord,   // the same, and a constant of 4 bytes
  kMoveByte,      // r/m, if reg is 0: a constant of 1 byte
  kMoveWord,      // the same, of 4 bytes
  kTestByte,      // nothing, if reg is 0 or 1: a constant of 1 byte
  kTestWord,      // the same, of 4 bytes
  kRegisterByte,  // ModR/M's reg, and a constant of 1 byte
  kRegisterWord,  // the same, of 4 bytes
};

constexpr std::array<Form, 256> one_byte_forms() {
  std::array<Form, 256> forms{};
  for (const unsigned arithmetic : {0x00U, 0x08U, 0x10U, 0x18U, 0x20U, 0x28U, 0x30U}) {
    forms[arithmetic] = forms[arithmetic + 1] = kOperand;
    forms[arithmetic + 2] = forms[arithmetic + 3] = kRegister;
  }
  for (const unsigned compare : {0x38U, 0x39U, 0x3aU, 0x3bU, 0x84U, 0x85U}) forms[compare] = kNothing;
  forms[0x63] = forms[0x8a] = forms[0x8b] = kRegister;  // movsxd, mov
  forms[0x8d] = kAddress;                               // lea
  for (const unsigned operand : {0x88U, 0x89U, 0xd0U, 0xd1U, 0xd2U, 0xd3U}) forms[operand] = kOperand;
  forms[0x80] = forms[0x83] = forms[0xc0] = forms[0xc1] = kOperandByte;
  forms[0x81] = kOperandWord;
  forms[0x6b] = kRegisterByte, forms[0x69] = kRegisterWord;  // imul
  forms[0xc6] = kMoveByte, forms[0xc7] = kMoveWord;
  forms[0xf6] = kTestByte, forms[0xf7] = kTestWord;
  return forms;
}

// Behind 0f.
constexpr std::array<Form, 256> two_byte_forms() {
  std::array<Form, 256> forms{};
  for (unsigned condition = 0x40; condition < 0x50; ++condition) forms[condition] = kRegister;  // cmov
  for (const unsigned extended : {0xb6U, 0xb7U, 0xbeU, 0xbfU, 0xafU})
    forms[extended] = kRegister;                                                               // movzx, movsx, imul
  for (unsigned condition = 0x90; condition < 0xa0; ++condition) forms[condition] = kOperand;  // set
  return forms;
}

// Opcodes behind 0f of vectors: with which prefixes, and with which VEX.vvvv, which names one more source.
enum VectorForm : std::uint8_t {
  kNone = 1,
  k66 = 2,
  kF3 = 4,
  kF2 = 8,
  kOneSource = 0x10,   // vvvv names none
  kTwoSources = 0x20,  // vvvv names a source
};
constexpr std::array<std::uint8_t, 256> vector_forms() {
  std::array<std::uint8_t, 256> forms{};
  for (const unsigned move : {0x28U, 0x29U, 0x2eU, 0x2fU}) forms[move] = kNone | k66 | kOneSource;  // movaps, ucomiss
  for (const unsigned logic : {0x54U, 0x55U, 0x56U, 0x57U}) forms[logic] = kNone | k66 | kOneSource | kTwoSources;
  for (const unsigned math : {0x58U, 0x59U, 0x5cU, 0x5dU, 0x5eU, 0x5fU})  // add, mul, sub, min, div, max
    forms[math] = kNone | k66 | kF3 | kF2 | kOneSource | kTwoSources;
  forms[0x10] = forms[0x11] = kNone | k66 | kF3 | kF2;  // movups; with VEX, vvvv depends on the operand
  forms[0x6f] = forms[0x7f] = k66 | kF3 | kOneSource;   // movdqa
  forms[0xef] = k66 | kOneSource | kTwoSources;         // pxor
  return forms;
}

constexpr std::size_t constant_length(Form form) {
  switch (form) {
    case kOperandByte:
    case kMoveByte:
    case kTestByte:
    case kRegisterByte: return 1;
    case kOperandWord:
    case kMoveWord:
    case kTestWord:
    case kRegisterWord: return 4;
    default: return 0;
  }
}

}  // namespace

std::size_t operand_length(const std::uint8_t* code, std::size_t size) {
  if (size == 0) return 0;
  const unsigned mod = code[0] >> 6, rm = code[0] & 7;
  if (mod == 3) return 1;
  const bool sib = rm == 4;
  if (sib && size < 2) return 0;
  const bool no_base = mod == 0 && (sib ? (code[1] & 7) == 5 : rm == 5);
  return 1U + (sib ? 1U : 0U) + (mod == 1 ? 1U : mod == 2 || no_base ? 4U : 0U);
}

std::size_t plain_length(ByteView code) {
  static constexpr auto kOneByte = one_byte_forms(), kTwoBytes = two_byte_forms();
  constexpr unsigned kRspNumber = 4;
  const std::uint8_t* bytes = code.u8();
  const std::size_t size = code.size();
  std::size_t at = 0;
  const unsigned rex = size != 0 && (bytes[0] & 0xf0) == 0x40 ? bytes[at++] : 0U;
  if (size < at + 2) return 0;
  const bool two = bytes[at] == 0x0f;
  if (two && size < ++at + 2) return 0;
  if (!two && (bytes[at] & 0xf8) == 0xb8) {  // mov reg, constant
    const std::size_t length = at + ((rex & 8) != 0 ? 9 : 5);
    return length <= size && ((rex & 1) << 3 | (bytes[at] & 7U)) != kRspNumber ? length : 0;
  }
  if (!two) {  // the accumulator, and a constant
    const bool arithmetic = bytes[at] < 0x40;
    const unsigned low = bytes[at] & 7U;
    if ((arithmetic && low == 4) || bytes[at] == 0xa8) return at + 2;
    if ((arithmetic && low == 5) || bytes[at] == 0xa9) return at + 5 <= size ? at + 5 : 0;
    if (bytes[at] == 0x98 || bytes[at] == 0x99) return at + 1;  // cdqe, cqo
  }
  const Form form = two ? kTwoBytes[bytes[at]] : kOneByte[bytes[at]];
  if (form == kOther) return 0;
  const std::uint8_t modrm = bytes[++at];
  const unsigned reg = (rex & 4) << 1 | (modrm >> 3 & 7), rm = (rex & 1) << 3 | (modrm & 7);
  const bool memory = modrm < 0xc0;
  const bool by_register = form == kRegister || form == kAddress || form == kRegisterByte || form == kRegisterWord;
  const bool moves = form == kMoveByte || form == kMoveWord, tests = form == kTestByte || form == kTestWord;
  if ((form == kAddress && !memory) || (moves && (modrm & 0x38) != 0) || (tests && (modrm & 0x38) > 8)) return 0;
  const bool by_operand = form != kNothing && !tests;
  if (by_register ? reg == kRspNumber : by_operand && !memory && rm == kRspNumber) return 0;
  const std::size_t operand = operand_length(bytes + at, size - at);
  const std::size_t length = at + operand + constant_length(form);
  return operand != 0 && length <= size ? length : 0;
}

std::size_t nop_length(ByteView code) {
  const std::uint8_t* bytes = code.u8();
  std::size_t at = 0;
  while (at < code.size() && (bytes[at] == 0x66 || bytes[at] == 0x2e) && at < 11) ++at;
  if (at < code.size() && bytes[at] == 0x90) return at + 1;
  if (code.size() - at < 3 || bytes[at] != 0x0f || bytes[at + 1] != 0x1f) return 0;
  const std::uint8_t modrm = bytes[at + 2];
  if ((modrm & 0x38) != 0 || modrm >= 0xc0) return 0;
  const std::size_t operand = operand_length(bytes + at + 2, code.size() - at - 2), length = at + 2 + operand;
  return operand != 0 && length <= code.size() ? length : 0;
}

std::size_t vector_length(ByteView code) {
  static constexpr auto kForms = vector_forms();
  const std::uint8_t* bytes = code.u8();
  const std::size_t size = code.size();
  if (size < 4) return 0;
  std::size_t at = 0;
  unsigned prefix = kNone;
  bool vex = false, has_source = false;
  if (bytes[0] == 0xc5 || (bytes[0] == 0xc4 && (bytes[1] & 0x1f) == 1)) {  // map 0f
    at = bytes[0] == 0xc5 ? 1 : 2;
    prefix = 1U << (bytes[at] & 3);
    has_source = (bytes[at] & 0x78) != 0x78;
    vex = true;
    ++at;
  } else {
    if (bytes[0] == 0x66 || bytes[0] == 0xf2 || bytes[0] == 0xf3)
      prefix = bytes[at++] == 0x66 ? k66 : bytes[0] == 0xf3 ? kF3 : kF2;
    if ((bytes[at] & 0xf0) == 0x40) ++at;
    if (bytes[at] != 0x0f || at + 2 >= size) return 0;
    ++at;
  }
  const std::uint8_t form = kForms[bytes[at]];
  if ((form & prefix) == 0 || (vex && (form & (has_source ? kTwoSources : kOneSource)) == 0)) return 0;
  ++at;
  const std::size_t operand = operand_length(bytes + at, size - at);
  return operand != 0 && at + operand <= size ? at + operand : 0;
}

}  // namespace windlass::flow
