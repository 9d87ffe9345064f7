/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Types that several layouts have.
 */
#ifndef WINDLASS_TYPES_H
#define WINDLASS_TYPES_H

#if !defined(__VMLINUX_H__)
#include <linux/types.h>
#endif

/* The machine of code. A raw event has its registers, by DWARF number. */
enum wl_machine {
  WL_MACHINE_X86_64 = 0,  /* 16 registers, then the pc */
  WL_MACHINE_AARCH64 = 1, /* x0 to x30, sp, then the pc */
  WL_MACHINE_I386 = 2,    /* 32-bit code on x86-64: x86-64's registers, whose lower halves are i386's. */
};

/* A hash of one more word. */
static inline __attribute__((always_inline, unused)) __u64 wl_mix(__u64 hash, __u64 value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

/* A function that an evaluator runs. A sample has all of the thread's, or none. */
struct wl_interpreted_frame {
  __u64 code;     /* Address of the code object, with WL_INTERPRETED_LAST. */
  __u32 identity; /* Of the code object at the sample's moment. */
  __u32 place;    /* In its bytecode: bytes (to CPython 3.9), instructions (3.10), bytes; words (Ruby). */
};
#define WL_NO_PLACE 0xffffffffu          /* The function is written in C. */
#define WL_INTERPRETED_LAST (1ull << 63) /* The outermost function that this activation of the evaluator runs. */
#define WL_MAX_INTERPRETED_FRAMES 4000u

#endif
