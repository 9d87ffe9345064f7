// Where epilogues may be in a function's code, found by what ends them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace windlass::winx64 {

// True if a byte, with the next byte, looks like the end of an epilogue: ret, ret n where n is a multiple of 8, jmp
// rel32 or rel8, or FF /4. Two kinds of FF /4 are jumps that leave. With `near_jumps`, rel8 counts.
[[nodiscard]] constexpr bool looks_like_exit(std::uint8_t byte, std::uint8_t next, bool near_jumps) {
  return byte == 0xc3 || (byte == 0xc2 && (next & 7) == 0) || byte == 0xe9 || (near_jumps && byte == 0xeb) ||
         (byte == 0xff && (next & 0x38) == 0x20);
}

inline constexpr std::uint32_t kExitBlock = 64;

// A bit for each of 64 bytes that looks like one. One byte more is read.
[[nodiscard]] inline std::uint64_t exits_in_block(const std::uint8_t* code, bool near_jumps) {
  std::uint64_t found = 0;
#if defined(__SSE2__)
  const __m128i jump_mask = _mm_set1_epi8(static_cast<char>(near_jumps ? 0xfd : 0xff));
  for (unsigned at = 0; at < kExitBlock; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(code + at));
    const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(code + at + 1));
    const auto all = [](unsigned byte) { return _mm_set1_epi8(static_cast<char>(byte)); };
    const __m128i returns = _mm_or_si128(
        _mm_cmpeq_epi8(bytes, all(0xc3)),
        _mm_and_si128(_mm_cmpeq_epi8(bytes, all(0xc2)), _mm_cmpeq_epi8(_mm_and_si128(next, all(7)), all(0))));
    const __m128i jumps = _mm_cmpeq_epi8(_mm_and_si128(bytes, jump_mask), all(0xe9));
    const __m128i indirect =
        _mm_and_si128(_mm_cmpeq_epi8(bytes, all(0xff)), _mm_cmpeq_epi8(_mm_and_si128(next, all(0x38)), all(0x20)));
    const __m128i any = _mm_or_si128(_mm_or_si128(returns, jumps), indirect);
    found |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(any))) << at;
  }
#else
  for (unsigned at = 0; at < kExitBlock; ++at)
    found |= std::uint64_t{looks_like_exit(code[at], code[at + 1], near_jumps)} << at;
#endif
  return found;
}

// Calls visit(offset) for each of `size` bytes that looks like one, ascending. A rel8 jump that cannot leave the first
// `length` bytes is none.
template <typename Visit>
void each_exit(const std::uint8_t* code, std::uint32_t size, std::uint32_t length, Visit&& visit) {
  constexpr std::uint32_t kNear = 128 + 2;  // bytes a rel8 jump reaches, with itself
  for (std::uint32_t base = 0; base < size; base += kExitBlock) {
    const bool near_jumps = base < kNear || base + kExitBlock + kNear > length;
    const std::uint32_t left = size - base;
    std::uint64_t found;
    if (left > kExitBlock) {
      found = exits_in_block(code + base, near_jumps);
    } else {
      std::uint8_t block[kExitBlock + 1] = {};
      std::memcpy(block, code + base, left);
      found = exits_in_block(block, near_jumps);
    }
    for (; found != 0; found &= found - 1) visit(base + static_cast<std::uint32_t>(std::countr_zero(found)));
  }
}

}  // namespace windlass::winx64
