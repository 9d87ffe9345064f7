// The register sets: DWARF numbers, their names, and which registers a call preserves.
// System V x86-64 psABI figure 3.36, AADWARF64 table 1, System V Intel386 psABI table 2.14; names as binutils prints
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "windlass/registers.h"

namespace windlass {

// DWARF numbers of the registers the library itself has to know.
namespace x86_64 {
inline constexpr std::uint16_t kRax = 0, kRbx = 3, kRsi = 4, kRdi = 5, kRbp = 6, kRsp = 7, kR12 = 12, kR15 = 15,
                               kReturnAddress = 16, kMm0 = 41, kFsBase = 58, kGsBase = 59;
// In the order of instructions' encoding: rax rcx rdx rbx rsp rbp rsi rdi r8-r15. Not within the functions that use
// them: GCC 12 would make them on the stack, at each call.
inline constexpr std::uint8_t kDwarfNumbers[16] = {0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};
// Of the low four bits.
[[nodiscard]] constexpr RegisterNumber dwarf_number(unsigned encoded) { return kDwarfNumbers[encoded & 15]; }
}  // namespace x86_64
namespace aarch64 {
inline constexpr std::uint16_t kX19 = 19, kX29 = 29, kX30 = 30, kSp = 31, kRaSignState = 34;
}
namespace i386 {
inline constexpr std::uint16_t kEax = 0, kEcx = 1, kEbx = 3, kEsp = 4, kEbp = 5, kEsi = 6, kEdi = 7, kReturnAddress = 8;
}

// "" for a number without a name.
[[nodiscard]] std::string_view register_name(Architecture architecture, std::uint64_t number);
// The name, or "r<number>".
[[nodiscard]] std::string register_text(Architecture architecture, std::uint64_t number);
[[nodiscard]] std::optional<std::uint16_t> register_number(Architecture architecture, std::string_view name);

[[nodiscard]] constexpr std::uint16_t stack_pointer(Architecture architecture) {
  return Registers::sp_number(architecture);
}
[[nodiscard]] constexpr std::uint16_t frame_pointer(Architecture architecture) {
  return Registers::fp_number(architecture);
}
// Registers a callee preserves, so that no rule means "same value".
[[nodiscard]] constexpr bool is_callee_saved(Architecture architecture, std::uint64_t number) {
  if (architecture == Architecture::kX86_64)
    return number == x86_64::kRbx || number == x86_64::kRbp || (number >= x86_64::kR12 && number <= x86_64::kR15);
  if (architecture == Architecture::kI386)
    return number == i386::kEbx || (number >= i386::kEbp && number <= i386::kEdi);
  return (number >= aarch64::kX19 && number <= aarch64::kX29) || (number >= 72 && number <= 79);  // and d8-d15
}
// Gives them to the caller's registers with the value they have.
inline void keep_preserved(const Registers& frame, Registers& caller) {
  frame.for_each([&](RegisterNumber reg, std::uint64_t value) {
    if (is_callee_saved(frame.architecture(), reg)) caller.set(reg, value);
  });
}

}  // namespace windlass
