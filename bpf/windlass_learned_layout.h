/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Frames of a runtime's code that the kernel side leaves by what it learned from the agent. A runtime says of an
 * address how a frame there is left, and which words of the frame say what runs in it. The agent asks the runtime when
 * such a frame is in a raw sample, and passes the answer on. Later samples need no raw stack.
 */
#ifndef WINDLASS_LEARNED_LAYOUT_H
#define WINDLASS_LEARNED_LAYOUT_H

#include "windlass_table_layout.h"

/* A lookup address in a process, or a block of code, of which wl_learned.places says where the lesson holds, or a
 * larger block of a heap. Code that a runtime adds leaves the epoch as it is. So lessons stay when mappings come. */
struct wl_learned_key {
  __u64 pc;    /* Of a block: its first address. */
  __u64 epoch; /* wl_process.epoch */
  __u32 tgid;
  __u32 kind; /* WL_LEARNED_* */
};
#define WL_LEARNED_EXACT 1u /* Of instructions that were interrupted, else of calls. */
#define WL_LEARNED_BLOCK 2u /* Without WL_LEARNED_EXACT of both. */
#define WL_LEARNED_HEAP 4u  /* A struct wl_code_heap stands in the lesson's place. */
#define WL_LEARNED_LARGE 8u /* With WL_LEARNED_BLOCK alone: the block's places are pieces of several bytes. */
#define WL_LEARNED_STEP 16u /* A struct wl_steady stands in the lesson's place, but of a block. */
#define WL_LEARNED_CALL 32u /* The same, with wl_caller_word() for the epoch, and the epoch in the value. */
/* The rule of WL_LEARNED_STEP | WL_LEARNED_BLOCK is proved, for every return address behind a call. Its guard_address
 * is where its function begins, and its guard_value a wl_block_guard(); 0: the code stays. */
#define WL_LEARNED_BLOCK_BYTES 64u
#define WL_LEARNED_LARGE_BYTES 512u
#define WL_LEARNED_PIECE_SHIFT 3 /* Of a large block. */
#define WL_LEARNED_HEAP_BYTES 0x10000u

/* A word that a sample takes along: a register, or [register + offset], on the stack. */
struct wl_taken {
  __s16 offset;
  __u8 reg;
  __u8 flags; /* WL_TAKEN_* */
};
#define WL_TAKEN_REGISTER 1 /* The register's own value. */
#define WL_TAKEN_SILENT 2   /* Two stacks that differ in this word alone are the same stack. */
/* flags >> WL_TAKEN_BEHIND, if not 0: the word is a pointer to an object, and what is taken is the word so many words
 * behind the object's begin. A collector moves the object before the agent could ask. The pointer's lowest bits are a
 * tag (WL_TAKEN_TAG). */
#define WL_TAKEN_BEHIND 2
#define WL_TAKEN_TAG 7ull

#define WL_MOST_TAKEN 4u

struct wl_learned {
  struct wl_rule rule;
  /* The code is still what it was if ([guard_address] & guard_mask) == guard_value. Address 0: it stays. */
  __u64 guard_address;
  __u64 guard_mask;
  __u64 guard_value;
  __u64 places; /* Of a block: the bit of each address, or piece, for which it holds, the block's first the lowest. */
  struct wl_taken taken[WL_MOST_TAKEN];
  __u32 taken_count;
  __u32 check; /* wl_learned_check() of the rest. A map's element may be given to another key while it is read. */
};

/* Where a heap of .NET's code tells of its methods (windlass_coreclr.h). It holds for the addresses of its key's block
 * that are in [begin, end). Code there is never freed. */
struct wl_code_heap {
  __u64 begin, end;
  __u64 base;             /* From where functions and their unwind information count. */
  __u64 map_base;         /* From where the nibble map counts. */
  __u64 map;              /* The nibble map, of the version that has pointers. */
  __u16 count, functions; /* Offsets in a method's header: how many functions it has, and these. */
  __u32 last_stub;        /* What stands in front of code in a header's place is none up to this number. */
  __u64 unused[2];
  __u32 reserved;
  __u32 check; /* As wl_learned has it. */
};

/* A step from code without rows that the agent has checked. It holds for a frame with the same return address, whose
 * CFA is as far above rsp and rbp. A word of the stack must be no return address, if the agent has looked for one there
 * first. Return addresses that have no room here have elements of their own. A step that the code itself proves holds
 * for every return address behind a call. Code that was made at run time may change: a step from such code has a guard.
 * Alone it is not taught for every return address, as its guard covers little of what proves it. */
#define WL_STEADY_CALLERS 3
#define WL_ANY_CALLER (~0ull) /* callers[0] */
struct wl_steady {
  struct wl_rule rule;              /* Its return address may be undefined: then the frame is the outermost one. */
  __s32 from_sp, from_fp;           /* 0: it does not matter. Of an outermost frame, from_fp: rbp is 0. */
  __u64 guard;                      /* wl_code_guard(); 0: the code stays. WL_LEARNED_CALL: as keys have the epoch. */
  __u64 callers[WL_STEADY_CALLERS]; /* wl_caller_word()s; 0: none. */
  __s32 word_at;                    /* Above rsp. */
  __u32 word;                       /* WL_WORD_* */
  __u32 certainty;                  /* wl_certainty */
  __u32 check;                      /* As wl_learned has it. */
};
#define WL_WORD_ANY 0u
#define WL_WORD_ZERO 1u  /* It is 0. */
#define WL_WORD_OTHER 2u /* It is neither 0 nor a return address. */

/* Of the code around a pc, from WL_GUARD_BEFORE bytes before it on. Never 0. */
#define WL_GUARD_BEFORE 8u
#define WL_GUARD_WORDS 4u
static inline __attribute__((always_inline, unused)) __u64 wl_sum_of_words(__u64 sum, const __u64* words, __u32 count) {
  for (__u32 i = 0; i < count; i++) sum = wl_mix(sum, words[i]);
  return sum;
}
static inline __attribute__((always_inline, unused)) __u64 wl_code_guard(const __u64* words) {
  return wl_sum_of_words(0, words, WL_GUARD_WORDS) | 1;
}
/* Of a block of code, by wl_sum_of_words() of the first WL_GUARD_WORDS words of its function. Never 0. */
static inline __attribute__((always_inline, unused)) __u64 wl_block_guard(__u64 begin, const __u64* block) {
  return wl_sum_of_words(begin, block, WL_LEARNED_BLOCK_BYTES / 8) | 1;
}

/* What stands for a return address in a step with this guard. `call`: the 8 bytes before the address, if that code may
 * change; else 0. */
static inline __attribute__((always_inline, unused)) __u64 wl_caller_word(__u64 caller, __u64 call, __u64 guard) {
  __u64 seen = call ^ guard * 0xbf58476d1ce4e5b9ull;
  return caller ^ (seen ^ seen >> 32) * 0x9e3779b97f4a7c15ull;
}

/* RUNTIME_FUNCTION, of a method or of a handler in it. */
struct wl_method_function {
  __u32 begin, end, info;
};

/* Of all that is learned for a key but `check`. */
static inline __attribute__((always_inline, unused)) __u32 wl_learned_check(const struct wl_learned* learned,
                                                                            struct wl_learned_key key) {
  const __u64* words = (const __u64*)learned;
  __u64 sum = key.pc ^ (key.epoch << 20) ^ ((__u64)key.tgid << 32 | key.kind << 8 | learned->taken_count);
  for (__u32 i = 0; i < sizeof *learned / 8 - 1; i++) sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15ull ^ sum >> 29;
  return (__u32)(sum >> 32);
}

/* What a sample takes along of one frame; `count` words follow. */
struct wl_taken_head {
  __u32 frame; /* Which user frame, from 0. */
  __u32 count;
};

/* The words may mean another thing later: managed memory is used again. So stacks with frames that were learned are
 * counted anew after so many ns, as a power of two: 8.6 s. */
#define WL_LEARNED_WINDOW_SHIFT 33

#define WL_MAX_TAKEN_WORDS 2048u /* Of a sample, heads included; a power of two. */

#endif
