/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The registers of one frame while a stack is unwound. Plain C, shared.
 */
#ifndef WINDLASS_CURSOR_H
#define WINDLASS_CURSOR_H

#include "windlass_ends.h"
#include "windlass_types.h"

/* DWARF register numbers, System V x86-64 psABI figure 3.36 */
#define WL_X64_RAX 0
#define WL_X64_RBX 3
#define WL_X64_RBP 6
#define WL_X64_RSP 7
#define WL_X64_RIP 16

/* AADWARF64 table 1; the pc has no number there and stands behind the others */
#define WL_A64_X29 29
#define WL_A64_X30 30
#define WL_A64_SP 31
#define WL_A64_PC 32

/* The architecture whose stacks are unwound. In BPF: the kernel's own, by libbpf's macro. In user code: this machine's,
 * or the includer's choice. */
#if !defined(WL_TARGET_A64) && (defined(__TARGET_ARCH_arm64) || defined(__aarch64__))
#define WL_TARGET_A64
#endif

#ifdef WL_TARGET_A64
#define WL_MACHINE WL_MACHINE_AARCH64
#define WL_FP WL_A64_X29
#define WL_SP WL_A64_SP
#define WL_PC WL_A64_PC
#define WL_RULE_REGISTERS 32u  /* those a rule can name; a power of two */
#define WL_EXTRA_REGISTERS 31u /* those that can be a module's extra one */
#else
#define WL_MACHINE WL_MACHINE_X86_64
#define WL_FP WL_X64_RBP
#define WL_SP WL_X64_RSP
#define WL_PC WL_X64_RIP
#define WL_RULE_REGISTERS 16u
#define WL_EXTRA_REGISTERS 16u
#endif
#define WL_REGISTER_MASK (WL_RULE_REGISTERS - 1)

#define WL_CONTINUE ((int)WL_END_COUNT) /* a step succeeded: there is a caller */

#define WL_MAX_FRAME_SIZE (1u << 30) /* no frame is larger: a CFA farther from sp is a wrong register */
#define WL_MAX_BACKWARD_STEPS 16u    /* switches of stack (signal stack, coroutine) below the current sp */

/* The registers of one frame, by DWARF number; the last is the pc, which is always known. */
struct wl_cursor {
  __u64 regs[WL_PC + 1];
  __u32 valid;   /* bit i: regs[i] is known */
  __u8 exact;    /* the pc is an instruction pointer (sampled, interrupted); else a return address */
  __u8 backward; /* steps that moved sp down so far */
  __u8 left;     /* a frame so far has WL_RULE_LEFT */
  __u8 reserved;
};

#define WL_VALID(cursor, reg) (((cursor)->valid >> (reg)) & 1u)
#ifdef WL_TARGET_A64
#define WL_VALID_BASE (1u << WL_SP)
#define WL_VALID_ALL (~0u)
#else
#define WL_VALID_BASE ((1u << WL_SP) | (1u << WL_PC))
#define WL_VALID_ALL ((1u << (WL_PC + 1)) - 1)
#endif

#endif
