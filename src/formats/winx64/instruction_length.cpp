#include "formats/winx64/instruction_length.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace windlass::winx64 {
namespace {

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

constexpr Map kOneByte = make_one_byte(), kTwoByte = make_two_byte(), kModRmSize = make_mod_rm();
constexpr unsigned kLongest = 15;
constexpr std::size_t kReach = kLongest + 3;  // bytes that are looked at: opcode, ModRM and SIB behind 14 prefixes

struct Prefixes {
  bool wide = false;  // REX.W
  bool operand_size = false;
  bool address_size = false;
  bool repeat = false;  // F2
};

// The size of everything: `at` is behind the opcode.
unsigned total(const std::uint8_t* code, const std::uint8_t* at, unsigned shape, const Prefixes& prefixes) {
  auto size = static_cast<unsigned>(at - code) + (shape & kImmediate);
  if ((shape & kModRm) != 0) {
    size += kModRmSize[at[0]];
    if ((at[0] & 0xc7) == 4 && (at[1] & 7) == 5) size += 4;  // SIB without a base
  }
  if ((shape & (kSized | kFull)) != 0) {
    const unsigned plain = prefixes.operand_size ? 2 : 4;
    size += !prefixes.wide ? plain : (shape & kFull) != 0 ? 8 : 4;
  }
  return size;
}

// An opcode of VEX, EVEX (maps 1-3, 5, 6) or XOP (8-10).
unsigned shape_in_map(unsigned map, std::uint8_t opcode) {
  switch (map) {
    case 1: return opcode == 0x77 || (kTwoByte[opcode] & kImmediate) == 1 ? kTwoByte[opcode] : unsigned{kModRm};
    case 2:
    case 5:
    case 6:
    case 9: return kModRm;
    case 3:
    case 8: return kModRm | 1;
    case 10: return kModRm | 4;
    default: return kInvalid;
  }
}

// Behind the prefixes; null: nothing but prefixes.
const std::uint8_t* skip_prefixes(const std::uint8_t* const code, Prefixes& prefixes) {
  for (const std::uint8_t* at = code; at - code != kLongest; ++at) {
    const std::uint8_t byte = *at;
    if (byte >= 0x40 && byte <= 0x4f) {
      prefixes.wide = (byte & 8) != 0;
      continue;
    }
    const bool is_prefix = byte == 0x66 || byte == 0x67 || byte == 0xf2 || byte == 0xf3 || byte == 0xf0 ||
                           byte == 0x64 || byte == 0x65 || (byte & 0xe7) == 0x26;
    if (!is_prefix) return at;
    prefixes.wide = false;  // REX counts only right before the opcode
    prefixes.operand_size |= byte == 0x66;
    prefixes.address_size |= byte == 0x67;
    prefixes.repeat |= byte == 0xf2;
  }
  return nullptr;
}

// Of any instruction.
unsigned whole_length(const std::uint8_t* const code) {
  Prefixes prefixes;
  const std::uint8_t* at = skip_prefixes(code, prefixes);
  if (at == nullptr) return 0;
  const std::uint8_t opcode = *at++;
  unsigned shape = kOneByte[opcode];
  switch (opcode) {
    case 0x0f: {
      const std::uint8_t second = *at++;
      shape = kTwoByte[second];
      if (second == 0x38 || second == 0x3a) {
        ++at;
        shape = second == 0x38 ? kModRm : kModRm | 1;
      } else if (second == 0x78) {
        shape = prefixes.operand_size || prefixes.repeat ? kModRm | 2 : kModRm;  // SSE4a: two immediates
      } else if (shape == kSpecial) {
        return static_cast<unsigned>(at - code) + 1;  // control registers: the ModRM byte means registers always
      }
      break;
    }
    case 0xf6: shape = (at[0] & 0x38) < 0x10 ? kModRm | 1 : kModRm; break;
    case 0xf7: shape = (at[0] & 0x38) < 0x10 ? kModRm | kSized : kModRm; break;
    case 0xa0:
    case 0xa1:
    case 0xa2:
    case 0xa3: return static_cast<unsigned>(at - code) + (prefixes.address_size ? 4 : 8);
    case 0xc5:
      shape = shape_in_map(1, at[1]);
      at += 2;
      break;
    case 0xc4:
      shape = (at[0] & 0x1f) <= 3 ? shape_in_map(at[0] & 0x1f, at[2]) : unsigned{kInvalid};
      at += 3;
      break;
    case 0x62:
      shape = (at[0] & 8) == 0 && (at[1] & 4) != 0 ? shape_in_map(at[0] & 7, at[3]) : unsigned{kInvalid};
      at += 4;
      break;
    case 0x8f:
      shape = kModRm;
      if ((at[0] & 0x1f) >= 8) {
        shape = shape_in_map(at[0] & 0x1f, at[2]);
        at += 3;
      }
      break;
    default: break;
  }
  return (shape & kInvalid) != 0 ? 0 : total(code, at, shape, prefixes);
}

// ---- quickly -------------------------------------------------------------------------------------------------------

// The size of most instructions follows from three bytes, without a branch. Code is read from bytes at which no
// instruction begins, too, so no processor could foretell branches. A part of a size has the low 4 bits; above these:
enum SizePart : std::uint8_t {
  kWithSib = 0x10,    // the third byte is a SIB, perhaps without a base
  kWithModRm = 0x20,  // the third byte is a ModRM byte
  kSlow = 0x80        // more has to be looked at
};
using QuickRow = std::array<std::uint8_t, 256>;  // by the second byte

// `shape` of the opcode, which is the first byte or, where `behind` is 1, the second.
consteval unsigned part_of(unsigned shape, unsigned behind, unsigned second, unsigned sized, unsigned full) {
  if ((shape & kInvalid) != 0) return 0;
  if ((shape & kSpecial) != 0) return kSlow;
  unsigned size = behind + 1 + (shape & kImmediate);
  if ((shape & kSized) != 0) size += sized;
  if ((shape & kFull) != 0) size += full;
  if ((shape & kModRm) == 0) return size;
  if (behind == 1) return size | kWithModRm;
  return (size + kModRmSize[second]) | ((second & 0xc7) == 4 ? unsigned{kWithSib} : 0U);
}

consteval unsigned part_of(unsigned first, unsigned second) {
  switch (first) {
    case 0x0f: return part_of(kTwoByte[second], 1, second, 4, 4);
    case 0x66: return part_of(kOneByte[second], 1, second, 2, 2);
    case 0xf6: return part_of((second & 0x38) < 0x10 ? kModRm | 1 : kModRm, 0, second, 4, 4);
    case 0xf7: return part_of((second & 0x38) < 0x10 ? kModRm | kSized : kModRm, 0, second, 4, 4);
    default: break;
  }
  if (first >= 0x40 && first <= 0x4f) return part_of(kOneByte[second], 1, second, 4, (first & 8) != 0 ? 8 : 4);
  return part_of(kOneByte[first], 0, second, 4, 4);
}

// First bytes that mean the same share a row.
consteval unsigned kind_of(unsigned first) {
  if (first == 0x0f || first == 0x66 || first == 0xf6 || first == 0xf7) return 0x100 | first;
  return first >= 0x40 && first <= 0x4f ? 0x200 | (first & 8) : kOneByte[first];
}

struct Quick {
  static constexpr std::size_t kRows = 24;
  QuickRow row_of{};  // by the first byte
  std::array<QuickRow, kRows> first_two{};
  std::array<QuickRow, 3> third{};  // by what the first two say of it
};
consteval Quick make_quick() {
  Quick quick;
  std::array<unsigned, Quick::kRows> kinds{};
  std::size_t count = 0;
  for (unsigned first = 0; first < 256; ++first) {
    std::size_t row = 0;
    while (row < count && kinds[row] != kind_of(first)) ++row;
    quick.row_of[first] = static_cast<std::uint8_t>(row);
    if (row < count) continue;
    kinds[count++] = kind_of(first);
    for (unsigned second = 0; second < 256; ++second)
      quick.first_two[row][second] = static_cast<std::uint8_t>(part_of(first, second));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    quick.third[kWithSib >> 4][byte] = (byte & 7) == 5 ? 4 : 0;
    quick.third[kWithModRm >> 4][byte] = (byte & 0xc7) == 4 ? std::uint8_t{kSlow} : kModRmSize[byte];
  }
  return quick;
}
constexpr Quick kQuick = make_quick();

// The size of an instruction of kReach bytes that can be read, or 0.
inline unsigned quick_length(const std::uint8_t* const code) {
  const unsigned first_two = kQuick.first_two[kQuick.row_of[code[0]]][code[1]];
  const unsigned third = kQuick.third[first_two >> 4 & 3][code[2]];
  if (((first_two | third) & kSlow) != 0) [[unlikely]] {
    const unsigned size = whole_length(code);
    return size <= kLongest ? size : 0;
  }
  return (first_two & 15) + third;
}

}  // namespace

unsigned instruction_length(ByteView code) {
  if (code.size() >= kReach) return quick_length(code.u8());
  if (code.empty()) return 0;
  std::uint8_t padded[kReach] = {};
  std::memcpy(padded, code.data(), code.size());
  const unsigned size = quick_length(padded);
  return size <= code.size() ? size : 0;
}

// Goes back byte by byte, and asks where code leads that begins there. The answer follows from the length of the first
// instruction and the answers for later bytes. Bit n of `there`: code from n bytes behind the present byte reaches
// `at`. Bit n of `past`: it misses `at`. Neither: there is no instruction.
Boundaries::Answer Boundaries::begins(std::uint32_t at) {
  constexpr unsigned kFar = 63;
  if (at == known_) return Answer::kYes;
  const bool near = at > known_ && at - known_ <= kFar;
  const unsigned far = near ? at - known_ : at < kFar ? at : kFar;
  const bool plenty = code_.size() - at >= kReach;
  std::uint64_t there = 1, past = ((std::uint64_t{1} << kLongest) - 1) & ~there;
  Answer answer = Answer::kOpen;
  for (unsigned back = 1; back <= far; ++back) {
    const std::uint32_t here = at - back;
    const unsigned size = plenty ? quick_length(code_.u8() + here)
                                 : instruction_length(ByteView(code_.data() + here, code_.size() - here));
    there <<= 1;
    past <<= 1;
    there |= there >> size & 1;  // no instruction has no size, and bit 0 is not set yet
    past |= past >> size & 1;
    if (back < kLongest) continue;
    // Whatever came before, an instruction begins at one of the last kLongest bytes looked at.
    constexpr std::uint64_t kWindow = (std::uint64_t{1} << kLongest) - 1;
    if ((there & kWindow) == 0 && (past & kWindow) != 0) return Answer::kNo;
    if ((past & kWindow) == 0 && (there & kWindow) != 0) {
      answer = Answer::kYes;
      break;
    }
  }
  if (near && answer == Answer::kOpen) {
    if ((past & 1) != 0) return Answer::kNo;
    if ((there & 1) != 0) answer = Answer::kYes;
  }
  if (answer == Answer::kYes) known_ = at;
  return answer;
}

}  // namespace windlass::winx64
