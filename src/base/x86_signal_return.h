// The code to which a signal handler returns, on Linux x86-64 and i386. It loads the number of sigreturn and enters the
// kernel, which resumes the interrupted code. Nothing follows the call: the next function begins behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "windlass/registers.h"

namespace windlass::x86 {

struct SignalReturn {
  std::uint8_t size;
  std::uint8_t code[9];
};
inline constexpr std::size_t kLongestSignalReturn = sizeof SignalReturn::code;
inline constexpr std::uint64_t kSystemCallSize = 2;  // syscall, int 0x80

// Does `code` begin with x86-64's syscall (Intel SDM 2B, "SYSCALL")? Two bytes are read.
[[nodiscard]] constexpr bool is_syscall(const std::uint8_t* code) { return code[0] == 0x0f && code[1] == 0x05; }

inline constexpr SignalReturn kSignalReturnsX86_64[] = {
    {9, {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}},  // mov rax, 15; syscall (glibc, musl, Go)
    {7, {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05}},              // mov eax, 15; syscall
};
inline constexpr SignalReturn kSignalReturnsI386[] = {
    {7, {0xb8, 0xad, 0, 0, 0, 0xcd, 0x80}},        // mov eax, 173; int 0x80: rt_sigreturn
    {8, {0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}},  // pop eax; mov eax, 119; int 0x80: sigreturn
};

[[nodiscard]] constexpr std::span<const SignalReturn> signal_returns(Architecture architecture) {
  if (architecture == Architecture::kX86_64) return kSignalReturnsX86_64;
  if (architecture == Architecture::kI386) return kSignalReturnsI386;
  return {};
}

// Does `form` begin at `address`? read(address, to, size): code; false where there is none.
template <typename Read>
[[nodiscard]] bool is_signal_return(const Read& read, const SignalReturn& form, std::uint64_t address) {
  std::uint8_t code[kLongestSignalReturn] = {};
  return read(address, code, form.size) && std::memcmp(code, form.code, form.size) == 0;
}

// The same at `address`, in any form.
template <typename Read>
[[nodiscard]] bool at_signal_return(const Read& read, Architecture architecture, std::uint64_t address) {
  for (const SignalReturn& form : signal_returns(architecture))
    if (is_signal_return(read, form, address)) return true;
  return false;
}

// Does `pc` stand behind the system call of that code?
template <typename Read>
[[nodiscard]] bool behind_signal_return(const Read& read, Architecture architecture, std::uint64_t pc) {
  for (const SignalReturn& form : signal_returns(architecture))
    if (is_signal_return(read, form, pc - form.size)) return true;
  return false;
}

}  // namespace windlass::x86
