/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The state of a walk over a stack. Plain C, shared by kernel side and user side.
 *
 * Data that outlives an instruction, or is read from the target, is here and not in local variables. BPF programs have
 * 512 bytes of stack over all frames. The verifier follows the values on that stack each by itself, but takes values
 * loaded from here for unknown. The includer has provided struct wl_env.
 */
#ifndef WINDLASS_UNWIND_H
#define WINDLASS_UNWIND_H

#include "windlass_code_layout.h"
#include "windlass_cursor.h"

WL_INLINE __u64 wl_mix(__u64 hash, __u64 value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

#define WL_CODE_BEFORE 8u /* bytes of code read before a pc */
#define WL_CODE_BYTES 32u
#define WL_SAVED_REGISTERS (WL_PC + 1) /* of a signal frame */

/* AArch64: sp, x29 and x30 as code is run (windlass_code_a64.h). */
struct wl_code_run {
  __u64 pc;
  __u64 sp, fp, lr;
  __u64 record;    /* where the code stored the pair x29, x30; 0 if it did not */
  __u64 record_fp; /* what it stored */
  __u64 record_lr;
  __u64 value; /* what was loaded last */
  __u32 word;  /* the instruction at the pc */
  __u8 fp_known;
  __u8 lr_known;
  __u8 record_fp_known;
  __u8 record_lr_known;
  __u8 lr_framed; /* x30 was loaded from the frame record: where the code stored it, or where x29 pointed */
  __u8 called;
  __u16 reserved;
};

/* A look-up in a code manager's table (windlass_managed.h). */
#define WL_CODE_ROWS_AT_ONCE 8u /* a power of two */

/* A shape and its first rows, or others of its rows. */
struct wl_code_piece {
  struct wl_code_shape shape;
  struct wl_code_row rows[WL_CODE_ROWS_AT_ONCE];
};

struct wl_code_search {
  __u64 seen;  /* all that was read, made one word */
  __u64 block; /* a wl_code_block, as one word, and what it is when it is read again */
  __u64 again;
  struct wl_code_record record; /* that was read last; the function's, once it is found */
  __u32 number;                 /* of this record; ~0: none yet */
  __u32 offset;                 /* of the address that is looked up */
  __u32 first;                  /* record of a run */
  __u32 low, high;              /* what is searched: a run, or a shape's rows */
  __u32 at;                     /* of a row */
  __u32 has_rows;               /* the piece has the first rows, too */
  struct wl_code_piece piece;
};

/* What a step reads; nothing in it outlives the step. */
struct wl_room {
  union {
    __u8 code[WL_CODE_BYTES];        /* around a pc */
    __u64 saved[WL_SAVED_REGISTERS]; /* of a signal frame */
    struct wl_code_run run;
    struct wl_code_search search;
  };
  __u64 cfa, base; /* of the rule that is applied: its CFA, its CFA's register */
  __u64 value;     /* a register in the caller */
  __u64 pair[2];   /* a frame record: the caller's frame pointer, the return address */
  __u8 call[8];    /* the code before a return address */
};

#define WL_GENERATED_NOW 1u   /* at run time */
#define WL_GENERATED_AHEAD 2u /* and stored in a file */

/* A code manager's table in the process, as far as it was looked at in this walk. */
struct wl_code_table {
  __u64 address;                /* 0: at none yet */
  struct wl_code_header header; /* its `recycled` is the one that was read last */
};

/* What an interpreter's evaluator runs (windlass_interpreter.h). */
#define WL_KNOWN_THREADS 16u /* a power of two */

struct wl_known_thread {
  __u64 thread_pointer;
  __u64 state;
  __u64 space;
};

struct wl_interpreted {
  struct wl_interpreter layout;
  __u64 sp;     /* the thread's stack pointer */
  __u64 thread; /* CPython: the thread's state, once it is found */
  __u64 end;    /* Ruby: where the frames end */
  __u64 at;     /* the next frame */
  __u64 hash;   /* of those so far */
  __u64 value;  /* what was read last */
  __u64 text;   /* Ruby: a hash of what a frame's code is called */
  __u32 count;  /* frames so far, behind the user frames */
  __u32 whole;  /* Ruby: of which these are of complete activations */
  __u32 identity;
  __u32 reserved;
  __u64 frame[WL_INTERPRETER_FRAME_BYTES / 8];
  __u64 code[WL_CODE_WORDS];
  __u64 lines[WL_CODE_WORDS];                     /* the first bytes of its table of lines */
  struct wl_known_thread known[WL_KNOWN_THREADS]; /* outlive the sample */
};

struct wl_unwind {
  struct wl_env env;
  struct wl_cursor cursor;
  /* The process: its mapping set, and the number of that set's state of its address space. */
  __u32 maps, map_count;
  __u32 space;
  __u32 has_interpreter; /* its struct wl_interpreter stands behind the mapping set */
  __u64 thread_pointer;  /* of the thread (x86-64: fs.base); 0 where it is not known */
  __u64 gs_base;         /* x86-64: likewise. Under Wine the TEB */
  /* What wl_find_rule said of the cursor's pc: its rule, or code without one. */
  __u32 ref;       /* of the rule; 0 = none */
  __u32 x_reg;     /* the extra register of the module's rules, or WL_NO_XREG */
  __u32 generated; /* without a rule: WL_GENERATED_NOW, WL_GENERATED_AHEAD, or 0: not generated */
  __u64 managed;   /* without a rule: where the table is of the code manager that may have one; 0: of none */
  struct wl_code_table table;
  struct wl_rule rule; /* of managed code */
  /* The walk. */
  __u64 hash;   /* of the frames so far */
  __u32 first;  /* index of the first user frame in wl_scratch.frames */
  __u32 frames; /* user frames so far */
  __u32 frame_limit;
  __u32 memo_hits;
  __u32 managed_frames;           /* left by a code manager's rows */
  __u32 end;                      /* wl_end, once it has ended */
  __u32 certainty;                /* wl_certainty of the least certain frame so far */
  __u64 other_stack;              /* WL_MAPPING_SWITCHED's way, once the walk has come to such code */
  __u64 held_way;                 /* WL_MAPPING_HELD's, likewise */
  struct wl_word words[WL_WORDS]; /* that were loaded beside the stacks */
  __u64 kept_sp;                  /* where a way leads to; 0: nowhere */
  __u64 kept_end;                 /* where that stack ends; ~0: not known */
  __u64 left_at;                  /* of this stack, if there is another one: what is above is not wanted; ~0: all is */
  __u64 next_stack;               /* sp on the first other stack that the walk came to; 0: it came to none */
  struct wl_room room;
  struct wl_interpreted interpreted;
};

/* A power of two over kernel + user + 2 * interpreted frames, so that an index can be masked. */
#define WL_FRAME_SLOTS 16384u

/* One sample in work. The event and its frames stand together, as they go into the ring. */
struct wl_scratch {
  struct wl_unwind unwind;
  /* Where the stack ends, if it is above sp: the main thread's arguments; the thread's control block. */
  __u64 stack_top, thread_block;
  __u64 machine; /* wl_machine of the code at hand */
  struct wl_stack_event event;
  __u64 frames[WL_FRAME_SLOTS];
};

#endif
