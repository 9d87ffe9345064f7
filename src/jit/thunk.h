// Jumps to any address that stand where 32-bit RVAs reach: how handlers far away are named in unwind information.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "windlass/registers.h"

namespace windlass::heap {

inline constexpr std::uint32_t kThunkSize = 16;

// To stand at a multiple of 8. Registers that it changes belong to whoever calls: none, on ARM64 x16.
inline void append_thunk(std::vector<std::byte>& to, Architecture architecture, std::uint64_t target) {
  static constexpr std::uint8_t kX64[8] = {0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc};  // jmp [rip + 2]; int3; int3
  static constexpr std::uint8_t kArm64[8] = {0x50, 0,    0,    0x58,             // ldr x16, [pc, #8]
                                             0,    0x02, 0x1f, 0xd6};            // br x16
  const std::size_t at = to.size();
  to.resize(at + kThunkSize);
  std::memcpy(&to[at], architecture == Architecture::kAArch64 ? kArm64 : kX64, 8);
  std::memcpy(&to[at + 8], &target, 8);
}

}  // namespace windlass::heap
