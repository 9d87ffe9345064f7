// The frame that Linux makes on the stack for a signal handler on x86-64, as the handler's return finds it. The general
// registers are at sp + kRegisters, in this order by DWARF number, and the pc behind them. Sources:
// arch/x86/include/asm/sigframe.h (struct rt_sigframe without the return address), struct ucontext, and sigcontext in
// uapi/asm/sigcontext.h.
#pragma once

#include <array>
#include <cstdint>

namespace windlass::x86_64 {

inline constexpr std::int32_t kSignalRegisters = 40;
inline constexpr std::array<std::uint8_t, 16> kSignalOrder = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7};
inline constexpr std::int32_t kSignalSp = kSignalRegisters + 15 * 8, kSignalPc = kSignalSp + 8;

}  // namespace windlass::x86_64
