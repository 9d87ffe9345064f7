/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Allocations as they are seen from outside of a process: at places in its code, with the arguments there.
 */
#ifndef WINDLASS_ALLOCATION_LAYOUT_H
#define WINDLASS_ALLOCATION_LAYOUT_H

#include "windlass_event_layout.h"
#include "windlass_types.h"

#define WL_MAX_ALLOCATORS 32u            /* functions of a file that allocate */
#define WL_MAX_SAMPLED_BLOCKS (1u << 20) /* that live */

/* Where an argument is. */
enum wl_operand_kind {
  WL_OPERAND_NONE = 0, /* There is no such argument: 0. */
  WL_OPERAND_CONSTANT = 1,
  WL_OPERAND_REGISTER = 2,
  WL_OPERAND_MEMORY = 3, /* at the register's value + offset */
};

struct wl_operand {
  __s64 offset;       /* CONSTANT: the value. */
  __u16 registers_at; /* of the register, in the kernel's pt_regs: bytes */
  __u8 kind;
  __u8 bits; /* of the value: 8, 16, 32, 64 */
  __u8 is_signed;
  __u8 unused[3];
};

enum wl_allocation_kind {
  WL_ALLOCATION_CALL = 0,   /* A function is entered: which calls are samples is decided here. */
  WL_ALLOCATION_SAMPLE = 1, /* A sample of the process's: it says the block, and what the sample stands for. */
  WL_ALLOCATION_FREE = 2,   /* The block of such a sample is freed. */
};

struct wl_allocation_place {
  struct wl_operand block;  /* SAMPLE, FREE, and CALL of realloc(): the old one */
  struct wl_operand size;   /* SAMPLE, CALL */
  struct wl_operand times;  /* CALL of calloc() */
  struct wl_operand weight; /* SAMPLE: bytes */
  __u64 begin;              /* CALL: the function's address in the file. */
  __u32 first_range;        /* CALL: of the file's functions in allocators. */
  __u32 ranges;
  __u8 kind;        /* wl_allocation_kind */
  __u8 reallocates; /* CALL */
  __u8 passes_null; /* CALL of realloc(), which leaves a null pointer to malloc(). */
  __u8 unused[5];
};

/* An allocating function's addresses in its file. What it calls itself is not counted again. */
struct wl_code_range {
  __u64 begin, end;
};

/* A sampled block that lives. */
struct wl_block_key {
  __u64 address;
  __u32 tgid;
  __u32 unused;
};
struct wl_block {
  struct wl_stack_key key; /* of the blocks in use with this stack */
  __u64 count, bytes;      /* that the sample stands for */
};

/* The key that counts blocks in use, beside the key of all that were allocated with the same stack. */
#define WL_IN_USE_BIT 1ull

/* Of size / period, in steps of 1 / WL_WEIGHT_STEPS up to WL_WEIGHT_END: x / (1 - exp(-x)), as 8.24. A sample stands
 * for so many periods. */
#define WL_WEIGHT_STEPS 64u
#define WL_WEIGHT_END 32u
#define WL_WEIGHTS (WL_WEIGHT_STEPS * WL_WEIGHT_END + 2u)
#define WL_MAX_ALLOCATION_PERIOD (1ull << 32)

#endif
