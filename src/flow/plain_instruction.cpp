#include "flow/plain_instruction.h"

#include <array>
#include <cstdint>

#include "formats/winx64/instruction_length.h"
#include "formats/winx64/opcode_map.h"

namespace windlass::flow {
namespace {

// What an opcode writes, if it is known here: one bit each, so that no branch depends on code that is read.
enum Form : std::uint8_t {
  kOther = 0,
  kNothing = 1,    // no register, or rax and rdx: a comparison, cdqe
  kNumbered = 2,   // the register that the opcode's low bits name
  kRegister = 4,   // ModR/M's reg
  kOperand = 8,    // ModR/M's r/m
  kInMemory = 16,  // r/m has to be memory
  kReg0 = 32,      // reg has to be 0
  kReg01 = 64,     // reg has to be 0 or 1
};
using Forms = std::array<std::uint8_t, 256>;

consteval Forms one_byte_forms() {
  Forms forms{};
  for (const unsigned arithmetic : {0x00U, 0x08U, 0x10U, 0x18U, 0x20U, 0x28U, 0x30U}) {
    forms[arithmetic] = forms[arithmetic + 1] = kOperand;
    forms[arithmetic + 2] = forms[arithmetic + 3] = kRegister;
    forms[arithmetic + 4] = forms[arithmetic + 5] = kNothing;  // the accumulator
  }
  for (unsigned compare = 0x38; compare < 0x3e; ++compare) forms[compare] = kNothing;
  for (const unsigned test : {0x84U, 0x85U, 0xa8U, 0xa9U}) forms[test] = kNothing;
  for (const unsigned one : {0x90U, 0x98U, 0x99U}) forms[one] = kNothing;  // nop, cdqe, cqo
  for (unsigned move = 0xb8; move < 0xc0; ++move) forms[move] = kNumbered;
  for (const unsigned move : {0x63U, 0x69U, 0x6bU, 0x8aU, 0x8bU}) forms[move] = kRegister;  // and imul
  forms[0x8d] = kRegister | kInMemory;                                                      // lea
  for (const unsigned operand : {0x80U, 0x81U, 0x83U, 0x88U, 0x89U}) forms[operand] = kOperand;
  for (const unsigned shift : {0xc0U, 0xc1U, 0xd0U, 0xd1U, 0xd2U, 0xd3U}) forms[shift] = kOperand;
  forms[0xc6] = forms[0xc7] = kOperand | kReg0;  // mov
  forms[0xf6] = forms[0xf7] = kReg01;            // test
  return forms;
}

// Behind 0f.
consteval Forms two_byte_forms() {
  Forms forms{};
  for (unsigned condition = 0x40; condition < 0x50; ++condition) forms[condition] = kRegister;  // cmov
  for (const unsigned extended : {0xb6U, 0xb7U, 0xbeU, 0xbfU, 0xafU})
    forms[extended] = kRegister;                                                               // movzx, movsx, imul
  for (unsigned condition = 0x90; condition < 0xa0; ++condition) forms[condition] = kOperand;  // set
  forms[0x1f] = kOperand | kReg0;                                                              // nop
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
using VectorForms = std::array<std::uint8_t, 256>;

consteval VectorForms vector_forms() {
  VectorForms forms{};
  for (const unsigned move : {0x28U, 0x29U, 0x2eU, 0x2fU}) forms[move] = kNone | k66 | kOneSource;  // movaps, ucomiss
  for (const unsigned logic : {0x54U, 0x55U, 0x56U, 0x57U}) forms[logic] = kNone | k66 | kOneSource | kTwoSources;
  for (const unsigned math : {0x58U, 0x59U, 0x5cU, 0x5dU, 0x5eU, 0x5fU})  // add, mul, sub, min, div, max
    forms[math] = kNone | k66 | kF3 | kF2 | kOneSource | kTwoSources;
  forms[0x10] = forms[0x11] = kNone | k66 | kF3 | kF2;  // movups; with VEX, vvvv depends on the operand
  forms[0x6f] = forms[0x7f] = k66 | kF3 | kOneSource;   // movdqa
  forms[0xef] = k66 | kOneSource | kTwoSources;         // pxor
  return forms;
}

constexpr Forms kOneByte = one_byte_forms(), kTwoBytes = two_byte_forms();
constexpr VectorForms kVectors = vector_forms();

// c5 and one byte, or c4 and two, in front of the opcode.
bool is_vex_vector(const std::uint8_t* bytes, std::size_t size) {
  const std::size_t at = bytes[0] == 0xc5 ? 1 : 2;
  if (size < at + 2 || (at == 2 && (bytes[1] & 0x1f) != 1)) return false;  // the map of 0f
  const std::uint8_t form = kVectors[bytes[at + 1]];
  const bool has_source = (bytes[at] & 0x78) != 0x78;
  return (form & 1U << (bytes[at] & 3)) != 0 && (form & (has_source ? kTwoSources : kOneSource)) != 0;
}

bool keeps_rsp(unsigned form, unsigned rex, unsigned opcode, unsigned modrm) {
  constexpr unsigned kRspNumber = 4;
  const unsigned field = modrm >> 3 & 7, reg = (rex & 4) << 1 | field, rm = (rex & 1) << 3 | (modrm & 7);
  const bool is_register = modrm >= 0xc0;
  const auto bad = [&](unsigned bit, bool condition) { return form & (0U - unsigned{condition}) & bit; };
  return form != kOther && (bad(kNumbered, ((rex & 1) << 3 | (opcode & 7)) == kRspNumber) |
                            bad(kRegister, reg == kRspNumber) | bad(kOperand, is_register && rm == kRspNumber) |
                            bad(kInMemory, is_register) | bad(kReg0, field != 0) | bad(kReg01, field > 1)) == 0;
}

// An instruction of one or two bytes of opcode, perhaps behind one prefix and REX.
struct Parts {
  winx64::opcode::Prefixes prefixes;
  bool two = false;
  std::uint8_t opcode = 0;
  std::size_t behind = 0;  // the opcode

  [[nodiscard]] unsigned shape(std::uint8_t modrm) const {
    using namespace winx64::opcode;
    if (two) return kTwoByte[opcode];
    if ((opcode & 0xfe) == 0xf6) return kModRm | ((modrm & 0x38) > 8 ? 0U : opcode == 0xf6 ? 1U : unsigned{kSized});
    return winx64::opcode::kOneByte[opcode];
  }
};

bool is_plain(const std::uint8_t* bytes, std::size_t size, Parts& parts) {
  std::size_t at = 0;
  unsigned prefix = kNone;
  if (bytes[0] == 0x66 || bytes[0] == 0xf2 || bytes[0] == 0xf3)
    prefix = bytes[at++] == 0x66 ? k66 : bytes[0] == 0xf3 ? kF3 : kF2;
  const unsigned rex = at < size && (bytes[at] & 0xf0) == 0x40 ? bytes[at++] : 0U;
  parts.two = at < size && bytes[at] == 0x0f;
  if (parts.two) ++at;
  if (at >= size) return false;
  parts.opcode = bytes[at];
  parts.behind = at + 1;
  parts.prefixes.wide = (rex & 8) != 0;
  parts.prefixes.operand_size = prefix == k66;
  if (parts.two && (kVectors[parts.opcode] & prefix) != 0) return true;
  const std::uint8_t modrm = at + 1 < size ? bytes[at + 1] : std::uint8_t{0};
  return prefix <= k66 && keeps_rsp((parts.two ? kTwoBytes : kOneByte)[parts.opcode], rex, parts.opcode, modrm);
}

}  // namespace

std::size_t plain_length(ByteView code) {
  if (code.empty()) return 0;
  const std::uint8_t* bytes = code.u8();
  const std::size_t size = code.size();
  if (bytes[0] == 0xc4 || bytes[0] == 0xc5) return is_vex_vector(bytes, size) ? winx64::instruction_length(code) : 0;
  Parts parts;
  if (!is_plain(bytes, size, parts)) return 0;
  if (size < winx64::opcode::kReach) return winx64::instruction_length(code);
  const std::uint8_t* behind = bytes + parts.behind;
  return winx64::opcode::total(bytes, behind, parts.shape(*behind), parts.prefixes);
}

std::size_t nop_length(ByteView code) {
  const std::uint8_t* bytes = code.u8();
  std::size_t at = 0;
  while (at < code.size() && (bytes[at] == 0x66 || bytes[at] == 0x2e) && at < 11) ++at;
  if (at < code.size() && bytes[at] == 0x90) return at + 1;
  if (code.size() - at < 3 || bytes[at] != 0x0f || bytes[at + 1] != 0x1f) return 0;
  const std::uint8_t modrm = bytes[at + 2];
  return (modrm & 0x38) == 0 && modrm < 0xc0 ? winx64::instruction_length(code) : 0;
}

}  // namespace windlass::flow
