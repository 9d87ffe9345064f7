// What x86-64 calls look like from behind.
#pragma once

#include <cstdint>

namespace windlass::x86_64 {

inline constexpr unsigned kLongestCall = 7;

// Does the code end with an indirect call, FF /2 (Intel SDM 2A, "CALL", tables 2-2 and 2-3)? A REX prefix before it
// changes nothing. Code is not read backwards with certainty: other instructions may end in the same bytes.
[[nodiscard]] constexpr bool ends_with_indirect_call(const std::uint8_t (&code)[kLongestCall]) {
  for (unsigned length = 2; length <= kLongestCall; ++length) {
    const std::uint8_t* call = code + kLongestCall - length;
    const unsigned mod = call[1] >> 6, rm = call[1] & 7;
    if (call[0] != 0xff || (call[1] >> 3 & 7) != 2) continue;
    const bool sib = mod != 3 && rm == 4;
    const bool no_base = mod == 0 && (sib ? length > 2 && (call[2] & 7) == 5 : rm == 5);
    const unsigned displacement = mod == 1 ? 1 : mod == 2 || no_base ? 4 : 0;
    if (length == 2 + (sib ? 1u : 0u) + displacement) return true;
  }
  return false;
}

// The same of any call: E8 rel32, too.
[[nodiscard]] constexpr bool ends_with_call(const std::uint8_t (&code)[kLongestCall]) {
  return code[kLongestCall - 5] == 0xe8 || ends_with_indirect_call(code);
}

}  // namespace windlass::x86_64
