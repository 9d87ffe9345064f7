#include "flow/plain_instruction.h"

#include <array>

namespace windlass::flow {
namespace {

// What an opcode writes, if it is known here, and how many bytes of a constant follow.
enum Form : std::uint8_t {
  kOther,
  kNothing,      // a comparison
  kRegister,     // ModR/M's reg
  kAddress,      // the same, and r/m is memory
  kOperand,      // ModR/M's r/m
  kOperandByte,  // the same, and a constant of 1 byte
  kOperandWord,  // the same, and a constant of 4 bytes
  kMoveByte,     // r/m, if reg is 0: a constant of 1 byte
  kMoveWord,     // the same, of 4 bytes
  kTestByte,     // nothing, if reg is 0 or 1: a constant of 1 byte
  kTestWord,     // the same, of 4 bytes
};

constexpr std::array<Form, 256> one_byte_forms() {
  std::array<Form, 256> forms{};
  for (const unsigned arithmetic : {0x00U, 0x08U, 0x10U, 0x18U, 0x20U, 0x28U, 0x30U}) {
    forms[arithmetic + 1] = kOperand;
    forms[arithmetic + 3] = kRegister;
  }
  for (const unsigned compare : {0x38U, 0x39U, 0x3aU, 0x3bU, 0x84U, 0x85U}) forms[compare] = kNothing;
  forms[0x63] = forms[0x8b] = kRegister;  // movsxd, mov
  forms[0x8d] = kAddress;                 // lea
  forms[0x89] = forms[0xd1] = forms[0xd3] = kOperand;
  forms[0x83] = forms[0xc1] = kOperandByte;
  forms[0x81] = kOperandWord;
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

constexpr std::size_t constant_length(Form form) {
  switch (form) {
    case kOperandByte:
    case kMoveByte:
    case kTestByte: return 1;
    case kOperandWord:
    case kMoveWord:
    case kTestWord: return 4;
    default: return 0;
  }
}

// ModR/M, SIB and displacement; 0: `code` ends before.
std::size_t operand_length(const std::uint8_t* code, std::size_t size) {
  const unsigned mod = code[0] >> 6, rm = code[0] & 7;
  if (mod == 3) return 1;
  const bool sib = rm == 4;
  if (sib && size < 2) return 0;
  const bool no_base = mod == 0 && (sib ? (code[1] & 7) == 5 : rm == 5);
  return 1U + (sib ? 1U : 0U) + (mod == 1 ? 1U : mod == 2 || no_base ? 4U : 0U);
}

}  // namespace

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
  const Form form = two ? kTwoBytes[bytes[at]] : kOneByte[bytes[at]];
  if (form == kOther) return 0;
  const std::uint8_t modrm = bytes[++at];
  const unsigned reg = (rex & 4) << 1 | (modrm >> 3 & 7), rm = (rex & 1) << 3 | (modrm & 7);
  const bool memory = modrm < 0xc0, by_register = form == kRegister || form == kAddress;
  const bool moves = form == kMoveByte || form == kMoveWord, tests = form == kTestByte || form == kTestWord;
  if ((form == kAddress && !memory) || (moves && (modrm & 0x38) != 0) || (tests && (modrm & 0x38) > 8)) return 0;
  const bool by_operand = form != kNothing && !tests;
  if (by_register ? reg == kRspNumber : by_operand && !memory && rm == kRspNumber) return 0;
  const std::size_t operand = operand_length(bytes + at, size - at);
  const std::size_t length = at + operand + constant_length(form);
  return operand != 0 && length <= size ? length : 0;
}

}  // namespace windlass::flow
