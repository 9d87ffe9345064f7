// libdw knows the relocations, registers and core notes of 15 machines, and has disassemblers: 210 KB of a static
// program. This file stands in for libdw's files of the machines and disassemblers that Windlass does not use.
//
// A machine whose function returns null is to libdw one that it does not know (ebl_openbackend, libebl/eblopenbackend.c
// of elfutils). Names and lines of its files are found as before.

// libdw's own names, which its archive then has no need to give. Other arguments and results than its own are not used.
extern "C" {

// NOLINTBEGIN(bugprone-macro-parentheses): a name
#define WINDLASS_UNUSED_MACHINE(name) \
  void* name(void* /*elf*/, unsigned short /*machine*/, void* /*backend*/) { return nullptr; }
// NOLINTEND(bugprone-macro-parentheses)
WINDLASS_UNUSED_MACHINE(alpha_init)
WINDLASS_UNUSED_MACHINE(arm_init)
WINDLASS_UNUSED_MACHINE(bpf_init)
WINDLASS_UNUSED_MACHINE(csky_init)
WINDLASS_UNUSED_MACHINE(ia64_init)
WINDLASS_UNUSED_MACHINE(m68k_init)
WINDLASS_UNUSED_MACHINE(ppc64_init)
WINDLASS_UNUSED_MACHINE(ppc_init)
WINDLASS_UNUSED_MACHINE(riscv_init)
WINDLASS_UNUSED_MACHINE(s390_init)
WINDLASS_UNUSED_MACHINE(sh_init)
WINDLASS_UNUSED_MACHINE(sparc_init)
#undef WINDLASS_UNUSED_MACHINE

int i386_disasm() { return -1; }
int x86_64_disasm() { return -1; }

}  // extern "C"
