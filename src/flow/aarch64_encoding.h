// Fields of A64 instructions (Arm Architecture Reference Manual, DDI 0487, chapter C4). The encoding is regular, so the
// few classes that matter to a stack are read directly. Reading takes nanoseconds and allocates nothing. It knows
// pointer authentication, which Debian 12's Capstone 4.0.2 does not decode: retaa, braa, blraa, ldraa are "no
// instruction" there.
//
// Tests compare with execution and with call frame information (tests/aarch64).
#pragma once

#include <cstdint>

namespace windlass::flow::a64 {

struct Word {
  std::uint32_t bits;

  [[nodiscard]] constexpr std::uint32_t field(unsigned low, unsigned count) const {
    return bits >> low & ((1u << count) - 1);
  }
  [[nodiscard]] constexpr bool bit(unsigned n) const { return (bits >> n & 1) != 0; }
  [[nodiscard]] constexpr bool is(std::uint32_t mask, std::uint32_t value) const { return (bits & mask) == value; }
  [[nodiscard]] constexpr std::int64_t signed_field(unsigned low, unsigned count) const {
    return static_cast<std::int64_t>(std::uint64_t{field(low, count)} << (64 - count)) >> (64 - count);
  }
  [[nodiscard]] constexpr unsigned rd() const { return field(0, 5); }  // Rt of loads and stores
  [[nodiscard]] constexpr unsigned rn() const { return field(5, 5); }
  [[nodiscard]] constexpr unsigned rt2() const { return field(10, 5); }
  [[nodiscard]] constexpr unsigned rm() const { return field(16, 5); }
  [[nodiscard]] constexpr bool wide() const { return bit(31); }  // sf: 64 bits

  // ---- C4.1, by bits 28:25
  [[nodiscard]] constexpr bool is_immediate() const { return is(0x1c00'0000, 0x1000'0000); }
  [[nodiscard]] constexpr bool is_branch_or_system() const { return is(0x1c00'0000, 0x1400'0000); }
  [[nodiscard]] constexpr bool is_load_store() const { return is(0x0a00'0000, 0x0800'0000); }
  [[nodiscard]] constexpr bool is_register() const { return is(0x0e00'0000, 0x0a00'0000); }
  [[nodiscard]] constexpr bool is_vector() const { return is(0x0e00'0000, 0x0e00'0000); }
  [[nodiscard]] constexpr bool is_scalable() const { return is(0x1e00'0000, 0x0400'0000); }

  [[nodiscard]] constexpr bool is_allocated() const { return !is(0x1e00'0000, 0) && !is(0x1e00'0000, 0x0200'0000); }
  // adr, adrp; movz, movn
  [[nodiscard]] constexpr bool makes_constant() const {
    return is_immediate() && (field(24, 2) == 0 || (field(23, 3) == 5 && field(29, 2) != 3));
  }

  // ---- branches
  [[nodiscard]] constexpr bool is_b() const { return bits >> 26 == 0b000101; }
  [[nodiscard]] constexpr bool is_bl() const { return bits >> 26 == 0b100101; }
  [[nodiscard]] constexpr bool is_b_cond() const { return is(0xff00'0000, 0x5400'0000); }
  [[nodiscard]] constexpr bool is_cbz() const { return is(0x7e00'0000, 0x3400'0000); }
  [[nodiscard]] constexpr bool is_tbz() const { return is(0x7e00'0000, 0x3600'0000); }
  // br, blr, ret and their authenticating forms
  [[nodiscard]] constexpr bool is_branch_register() const { return is(0xfe1f'f000, 0xd61f'0000); }
  [[nodiscard]] constexpr bool is_br() const { return is_branch_register() && field(21, 3) == 0; }
  [[nodiscard]] constexpr bool is_blr() const { return is_branch_register() && field(21, 3) == 1; }
  [[nodiscard]] constexpr bool is_ret() const { return is_branch_register() && field(21, 4) == 2; }
  [[nodiscard]] constexpr bool authenticates() const { return bit(11); }  // of those
  [[nodiscard]] constexpr bool is_call() const { return is_bl() || is_blr(); }
  [[nodiscard]] constexpr bool is_svc() const { return is(0xffe0'001f, 0xd400'0001); }
  [[nodiscard]] constexpr bool is_exception() const { return is(0xff00'0000, 0xd400'0000); }
  [[nodiscard]] constexpr bool is_hint() const { return is(0xffff'f01f, 0xd503'201f); }
  // paciaz, paciasp, pacibz, pacibsp, autiaz, autiasp, autibz, autibsp
  [[nodiscard]] constexpr bool signs_or_authenticates_link() const {
    return is_hint() && field(5, 7) >= 24 && field(5, 7) <= 31;
  }
  [[nodiscard]] constexpr std::uint64_t branch_target(std::uint64_t pc) const {
    const std::int64_t words = is_b() || is_bl() ? signed_field(0, 26)
                               : is_tbz()        ? signed_field(5, 14)
                                                 : signed_field(5, 19);
    return pc + static_cast<std::uint64_t>(words * 4);
  }

  // ---- loads and stores
  [[nodiscard]] constexpr bool is_pair() const { return is(0x3a00'0000, 0x2800'0000); }
  [[nodiscard]] constexpr bool is_literal() const { return is(0x3b00'0000, 0x1800'0000); }
  [[nodiscard]] constexpr bool is_single() const { return is(0x3a00'0000, 0x3800'0000); }
  [[nodiscard]] constexpr bool is_exclusive() const { return is(0x3f00'0000, 0x0800'0000); }
  [[nodiscard]] constexpr bool is_unscaled_ordered() const { return is(0x3f20'0c00, 0x1900'0000); }
  [[nodiscard]] constexpr bool is_tag_store() const { return is(0xff20'0000, 0xd920'0000); }
  [[nodiscard]] constexpr bool is_vector_structure() const { return is(0xbe00'0000, 0x0c00'0000); }
  [[nodiscard]] constexpr bool is_memory_copy() const { return is(0x3b20'0c00, 0x1900'0400); }
};

// The value of a logical immediate (N:immr:imms; shared pseudocode DecodeBitMasks), or 0 where it is reserved.
[[nodiscard]] constexpr std::uint64_t logical_immediate(Word word) {
  const unsigned imms = word.field(10, 6);
  const unsigned immr = word.field(16, 6);
  const unsigned combined = (word.bit(22) ? 64u : 0u) | (~imms & 63u);
  unsigned length = 0;
  for (unsigned i = 7; i-- > 0;)
    if ((combined >> i & 1) != 0) {
      length = i;
      break;
    }
  if (length == 0) return 0;
  const unsigned size = 1u << length;
  const unsigned ones = (imms & (size - 1)) + 1;
  const unsigned rotation = immr & (size - 1);
  if (ones == size && size == 64) return 0;
  const std::uint64_t all = size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
  const std::uint64_t run = ones == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ones) - 1;
  std::uint64_t element = rotation == 0 ? run : ((run >> rotation) | (run << (size - rotation))) & all;
  for (unsigned at = size; at < 64; at *= 2) element |= element << at;
  return word.wide() ? element : element & 0xffff'ffff;
}

}  // namespace windlass::flow::a64
