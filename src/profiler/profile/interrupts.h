// Which functions of the kernel an interrupt begins with.
#pragma once

#include <string_view>

namespace windlass::profile {

// Names of x86-64 (arch/x86/include/asm/idtentry.h) and AArch64 (arch/arm64/kernel/entry-common.c). `name` is of a
// function of the kernel.
[[nodiscard]] inline bool enters_interrupt(std::string_view name) {
  for (const std::string_view begin : {"asm_sysvec_", "sysvec_", "asm_common_interrupt", "common_interrupt",
                                       "el1_interrupt", "el0_interrupt", "el1h_64_irq", "el0t_64_irq"})
    if (name.starts_with(begin)) return true;
  return false;
}

}  // namespace windlass::profile
