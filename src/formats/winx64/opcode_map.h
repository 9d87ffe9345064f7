// What follows the opcodes of x86-64: the one place for the sizes of operands and immediates. instruction_length()
// looks at all instructions, flow::plain_length() at the commonest, by a way that is faster for them. Source: Intel SDM
// volume 2, chapter 2 and appendix A (opcode maps).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace windlass::winx64::opcode {

// What follows an opcode: the low bits are the size of an immediate that is always the same.
enum Shape : std::uint8_t {
  kImmediate = 7,
  kModRm = 8,
  kSized = 16,    // an immediate of 4 bytes, 2 with an operand-size prefix
  kFull = 32,     // of the operand's size, up to 8
  kSpecial = 64,  // prefix, escape, or more has to be looked at
  kInvalid = 128  // in 64-bit mode
};

using Map = std::array<std::uint8_t, 256>;

consteval void fill(Map& map, unsigned first, unsigned last, unsigned shape) {
  for (unsigned opcode = first; opcode <= last; ++opcode) map[opcode] = static_cast<std::uint8_t>(shape);
}
template <typename... Opcodes>
consteval void put(Map& map, unsigned shape, Opcodes... opcodes) {
  ((map[opcodes] = static_cast<std::uint8_t>(shape)), ...);
}

// Table A-2. Displacements of jumps stay 4 bytes whatever the prefix.
consteval Map make_one_byte() {
  Map map{};
  for (unsigned row = 0; row < 0x40; row += 8) {
    fill(map, row, row + 3, kModRm);
    put(map, 1, row + 4);
    put(map, kSized, row + 5);
    put(map, kInvalid, row + 6, row + 7);
  }
  fill(map, 0x40, 0x4f, kSpecial);
  put(map, kSpecial, 0x0f, 0x26, 0x2e, 0x36, 0x3e, 0x62, 0x64, 0x65, 0x66, 0x67, 0x8f, 0xa0, 0xa1, 0xa2, 0xa3, 0xc4,
      0xc5, 0xf0, 0xf2, 0xf3, 0xf6, 0xf7);
  put(map, kInvalid, 0x60, 0x61, 0x82, 0x9a, 0xce, 0xd4, 0xd5, 0xd6, 0xea);
  put(map, kModRm, 0x63, 0xfe, 0xff);
  put(map, kSized, 0x68, 0xa9);
  put(map, 4, 0xe8, 0xe9);
  put(map, kModRm | kSized, 0x69, 0x81, 0xc7);
  put(map, kModRm | 1, 0x6b, 0x80, 0x83, 0xc0, 0xc1, 0xc6);
  put(map, 1, 0x6a, 0xa8, 0xcd, 0xeb);
  fill(map, 0x70, 0x7f, 1);
  fill(map, 0x84, 0x8e, kModRm);
  fill(map, 0xb0, 0xb7, 1);
  fill(map, 0xb8, 0xbf, kFull);
  put(map, 2, 0xc2, 0xca);
  put(map, 3, 0xc8);
  fill(map, 0xd0, 0xd3, kModRm);
  fill(map, 0xd8, 0xdf, kModRm);
  fill(map, 0xe0, 0xe7, 1);
  return map;
}

// Table A-3, behind 0F. VEX and EVEX have the same immediates.
consteval Map make_two_byte() {
  Map map{};
  fill(map, 0x00, 0xff, kModRm);
  put(map, 0, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0b, 0x0e, 0x37, 0x77, 0xa0, 0xa1, 0xa2, 0xa8, 0xa9, 0xaa);
  put(map, kInvalid, 0x04, 0x0a, 0x0c, 0x24, 0x25, 0x26, 0x27, 0x36, 0x39, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f);
  fill(map, 0x30, 0x35, 0);
  fill(map, 0x80, 0x8f, 4);
  fill(map, 0xc8, 0xcf, 0);
  fill(map, 0x70, 0x73, kModRm | 1);
  put(map, kModRm | 1, 0x0f, 0xa4, 0xac, 0xba, 0xc2, 0xc4, 0xc5, 0xc6);
  put(map, kSpecial, 0x20, 0x21, 0x22, 0x23, 0x38, 0x3a, 0x78);
  return map;
}

// What a ModRM byte stands for: itself, a SIB byte, a displacement.
consteval Map make_mod_rm() {
  Map map{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned mod = byte >> 6, rm = byte & 7;
    unsigned size = 1;
    if (mod != 3 && rm == 4) ++size;
    if (mod == 1) ++size;
    if (mod == 2 || (mod == 0 && rm == 5)) size += 4;
    map[byte] = static_cast<std::uint8_t>(size);
  }
  return map;
}

inline constexpr Map kOneByte = make_one_byte(), kTwoByte = make_two_byte(), kModRmSize = make_mod_rm();
inline constexpr unsigned kLongest = 15;
inline constexpr std::size_t kReach =
    kLongest + 3;  // bytes that are looked at: opcode, ModRM and SIB behind 14 prefixes

// Those that change what follows.
struct Prefixes {
  bool wide = false;  // REX.W
  bool operand_size = false;
  bool address_size = false;
  bool repeat = false;  // F2
};

// The size of everything: `at` is behind the opcode. Up to kReach bytes of `code` are read.
inline unsigned total(const std::uint8_t* code, const std::uint8_t* at, unsigned shape, const Prefixes& prefixes) {
  const unsigned with_operand = 0U - unsigned{(shape & kModRm) != 0};
  const bool no_base = (at[0] & 0xc7) == 4 && (at[1] & 7) == 5;  // a SIB byte
  const unsigned operand = (kModRmSize[at[0]] + (unsigned{no_base} << 2)) & with_operand;
  auto size = static_cast<unsigned>(at - code) + (shape & kImmediate) + operand;
  if ((shape & (kSized | kFull)) != 0) {
    const unsigned plain = prefixes.operand_size ? 2 : 4;
    size += !prefixes.wide ? plain : (shape & kFull) != 0 ? 8 : 4;
  }
  return size;
}

}  // namespace windlass::winx64::opcode
