/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The registers of one frame while a stack is unwound. Plain C, shared.
 */
#ifndef WINDLASS_CURSOR_H
#define WINDLASS_CURSOR_H

#include "windlass_layout.h"

/* DWARF register numbers, System V x86-64 psABI figure 3.36 */
#define WL_X64_RAX 0
#define WL_X64_RBX 3
#define WL_X64_RBP 6
#define WL_X64_RSP 7
#define WL_X64_RIP 16

#define WL_CONTINUE ((int)WL_END_COUNT) /* a step succeeded: there is a caller */

#define WL_MAX_FRAME_SIZE (1u << 30)  /* no frame is larger: a CFA farther from sp is a wrong register */
#define WL_MAX_BACKWARD_STEPS 16u     /* switches of stack (signal stack, coroutine) below the current sp */

/* The registers of one frame, by DWARF number; 16 is the pc. */
struct wl_cursor {
  __u64 regs[17];
  __u32 valid;     /* bit i: regs[i] is known */
  __u8 exact;      /* the pc is an instruction pointer (sampled, interrupted); else a return address */
  __u8 backward;   /* steps that moved sp down so far */
  __u16 reserved;
};

#define WL_VALID(cursor, reg) (((cursor)->valid >> (reg)) & 1u)
#define WL_VALID_BASE ((1u << WL_X64_RSP) | (1u << WL_X64_RIP))

#endif
