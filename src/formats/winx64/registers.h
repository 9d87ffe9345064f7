// The registers of Windows x64 unwind information. The operation info names registers by their number in instructions:
// 0-15 are rax rcx rdx rbx rsp rbp rsi rdi r8-r15, and with APX (version 3) 16-31. Windlass's registers are by DWARF
// number. Sources: "x64 exception handling" and "x64 calling convention" (Microsoft).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/registers.h"
#include "windlass/frame_row.h"

namespace windlass::winx64 {

inline constexpr unsigned kRsp = 4, kRbp = 5;

// Not within the functions that use them: GCC 12 would make them on the stack, at each call.
inline constexpr std::string_view kRegisterNames[32] = {
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15",
    "r16", "r17", "r18", "r19", "r20", "r21", "r22", "r23", "r24", "r25", "r26", "r27", "r28", "r29", "r30", "r31"};

using x86_64::dwarf_number;

// The same of a set of them: bit n is register n.
[[nodiscard]] constexpr std::uint32_t dwarf_numbers(std::uint32_t numbers) {
  return (numbers & 0xff09) | (numbers & 2) << 1 | (numbers & 4) >> 1 | (numbers & 0x10) << 3 | (numbers & 0x20) << 1 |
         (numbers & 0xc0) >> 2;
}

// And back; 16 for what is none of these.
[[nodiscard]] constexpr unsigned instruction_number(RegisterNumber dwarf) {
  unsigned number = 0;
  while (number < 16 && dwarf_number(number) != dwarf) ++number;
  return number;
}

// "rax" .. "r15", "r16" .. "r31".
[[nodiscard]] constexpr std::string_view register_name(unsigned number) { return kRegisterNames[number & 31]; }

// Preserved by calls: rbx rbp rdi rsi r12-r15 (System V preserves neither rdi nor rsi), by instruction number.
[[nodiscard]] constexpr bool is_preserved(unsigned number) {
  return number == 3 || number == kRbp || number == 6 || number == 7 || (number >= 12 && number <= 15);
}

// Code of .NET for Linux has Windows' unwind information and System V's convention (clr-abi.md, "System V x86_64
// support").
inline constexpr unsigned kPreservedByWindowsAlone[] = {6, 7};
inline void take_system_v(FrameRow& row) {
  for (const unsigned number : kPreservedByWindowsAlone) row.registers.erase(dwarf_number(number));
}

// xmm0-xmm15 are DWARF's 17-32; calls preserve xmm6-xmm15.
inline constexpr RegisterNumber kXmm0 = 17;
[[nodiscard]] constexpr bool is_xmm(RegisterNumber dwarf) { return dwarf >= kXmm0 && dwarf < kXmm0 + 16; }

}  // namespace windlass::winx64
