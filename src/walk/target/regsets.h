// Registers in the layouts that Linux hands them out in: the same bytes in a core file's notes and from
// PTRACE_GETREGSET.
#pragma once

#include "windlass/bytes.h"
#include "windlass/registers.h"

namespace windlass::walk {

// elf_gregset_t (NT_PRSTATUS): x86-64 user_regs_struct, 27 words; AArch64 user_pt_regs, 34 words; i386 17
// words of 4 bytes (linux arch/*/include/uapi/asm/ptrace.h, arch/x86/include/asm/user32.h). kTruncated if there are
// fewer bytes.
[[nodiscard]] Expected<Registers> general_registers(Architecture architecture, ByteView regset);
[[nodiscard]] std::size_t general_registers_size(Architecture architecture);

// AArch64 user_fpsimd_state (NT_FPREGSET): adds d8-d15, the vector registers that calls preserve (AAPCS64 6.1.2).
Expected<void> add_vector_registers(Registers& to, ByteView regset);

}  // namespace windlass::walk
