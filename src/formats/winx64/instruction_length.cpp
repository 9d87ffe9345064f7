#include "formats/winx64/instruction_length.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "formats/winx64/opcode_map.h"

namespace windlass::winx64 {
namespace {

using namespace opcode;

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
