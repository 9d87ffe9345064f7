/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * What of a task depends on the machine.
 */
#ifndef WINDLASS_MACHINE_BPF_H
#define WINDLASS_MACHINE_BPF_H

#include "windlass_types.h"

#ifdef WL_TARGET_A64

#define WL_CONTEXT_PC(regs) ((regs).pc)
#define WL_TASK_PC(regs) ((regs)->pc)
#define WL_TASK_SYSCALL(regs) ((regs)->syscallno) /* negative: in an exception */
#define WL_CALL_FUTEX 98
#define WL_PSTATE_AARCH32 0x10 /* PSR_MODE32_BIT */

/* 32-bit code's, which nobody unwinds. */
WL_INLINE int wl_is_compat(const struct pt_regs___kernel* regs) { return (regs->pstate & WL_PSTATE_AARCH32) != 0; }

WL_INLINE void wl_load_registers(struct wl_cursor* cursor, const struct pt_regs___kernel* regs) {
  bpf_probe_read_kernel(cursor->regs, sizeof cursor->regs, regs); /* x0 to x30, sp, pc: as we number them */
  cursor->valid = WL_VALID_ALL;
  cursor->exact = 1;
  cursor->backward = 0;
  cursor->left = 0;
}

/* The C libraries put a thread's control block, which tpidr_el0 points to, at the top of its stack. */
WL_INLINE __u64 wl_thread_block(const struct task_struct* task) { return task->thread.uw.tp_value; }

WL_INLINE __u64 wl_gs_base(const struct task_struct* task) { return 0; }

#else

#define WL_CONTEXT_PC(regs) ((regs).rip)
#define WL_TASK_PC(regs) ((regs)->ip)
#define WL_TASK_SYSCALL(regs) ((int)(regs)->orig_ax) /* negative: in an exception */
#define WL_CALL_FUTEX 202
#define WL_USER32_CS 0x23
#define WL_COMPAT_MACHINE WL_MACHINE_I386

/* 32-bit code's. */
WL_INLINE int wl_is_compat(const struct pt_regs___kernel* regs) { return regs->cs == WL_USER32_CS; }

WL_INLINE void wl_load_registers(struct wl_cursor* cursor, const struct pt_regs___kernel* regs) {
  cursor->regs[0] = regs->ax;
  cursor->regs[1] = regs->dx;
  cursor->regs[2] = regs->cx;
  cursor->regs[3] = regs->bx;
  cursor->regs[4] = regs->si;
  cursor->regs[5] = regs->di;
  cursor->regs[6] = regs->bp;
  cursor->regs[7] = regs->sp;
  cursor->regs[8] = regs->r8;
  cursor->regs[9] = regs->r9;
  cursor->regs[10] = regs->r10;
  cursor->regs[11] = regs->r11;
  cursor->regs[12] = regs->r12;
  cursor->regs[13] = regs->r13;
  cursor->regs[14] = regs->r14;
  cursor->regs[15] = regs->r15;
  cursor->regs[16] = regs->ip;
  cursor->valid = WL_VALID_ALL;
  cursor->exact = 1;
  cursor->backward = 0;
  cursor->left = 0;
}

/* The C libraries put a thread's control block, which fs points to, at the top of its stack. */
WL_INLINE __u64 wl_thread_block(const struct task_struct* task) { return task->thread.fsbase; }

/* As arch_prctl(ARCH_SET_GS) has set it, which Wine does once a thread. */
WL_INLINE __u64 wl_gs_base(const struct task_struct* task) { return task->thread.gsbase; }

/* The same of 32-bit code, by gs: the first of the segments that set_thread_area makes, which the C libraries take. Its
 * descriptor has the base's bits 0 to 23 at 16 and 24 to 31 at 56 (Intel SDM 3A, "Segment Descriptors"). */
WL_INLINE __u64 wl_compat_thread_block(const struct task_struct* task) {
  __u64 descriptor = 0;
  if (bpf_probe_read_kernel(&descriptor, sizeof descriptor, &task->thread.tls_array)) return 0;
  return (descriptor >> 16 & 0xffffff) | descriptor >> 56 << 24;
}

#endif

#endif
