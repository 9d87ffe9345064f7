// Return addresses with an authentication code. AArch64 code can be compiled to sign return addresses: the code goes
// into the unused upper bits (FEAT_PAuth). Which bits these are depends on the kernel's address size, 39 to 52 bits.
//
// The processor knows the bits, and removes the code by XPACLRI. This instruction is a hint, so processors without the
// feature ignore it. It works with any key (Arm ARM C6.2, "XPACD, XPACI, XPACLRI"). The mask that ptrace gives
// (NT_ARM_PAC_MASK) is the same, but asking needs a child process.
#pragma once

#include <cstdint>

namespace windlass {

// A return address of this machine's user code, without its code.
[[nodiscard]] inline std::uint64_t without_authentication(std::uint64_t address) {
#if defined(__aarch64__)
  asm("mov x30, %0\n\thint #7\n\tmov %0, x30" : "+r"(address) : : "x30");
#endif
  return address;
}

// What to AND return addresses with for the same; all ones where nothing can be signed. For those who have them from
// elsewhere: other processes, the kernel side.
[[nodiscard]] inline std::uint64_t user_code_mask() {
  constexpr std::uint64_t kAll = ~std::uint64_t{0} >> 9;  // bit 55 separates user from kernel, above it may be a tag
  const std::uint64_t address = without_authentication(kAll);
  return address == kAll ? ~std::uint64_t{0} : address;
}

}  // namespace windlass
