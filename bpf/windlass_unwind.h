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
#include "windlass_event_layout.h"
#include "windlass_interpreter_layout.h"
#include "windlass_labels_layout.h"
#include "windlass_learned_layout.h"
#include "windlass_process_layout.h"
#include "windlass_table_layout.h"
#include "windlass_trail_layout.h"

/* Comparisons without a branch: a branch makes two paths for the verifier. */
WL_INLINE __u64 wl_less(__u64 a, __u64 b) { /* 1 if a < b, else 0; both below 2^63 */
  WL_OPAQUE(a);                             /* else the compiler knows it for a comparison and makes a branch of it */
  __u64 less = (a - b) >> 63;
  WL_OPAQUE(less);
  return less;
}

WL_INLINE __u64 wl_equal(__u32 a, __u32 b) { /* 1 or 0, without a branch either */
  __u64 different = a ^ b;
  return wl_less(different, 1);
}

#define WL_CODE_BEFORE 8u /* Bytes of code read before a pc. */
#define WL_CODE_BYTES 32u
#define WL_SAVED_REGISTERS (WL_PC + 1) /* Of a signal frame. */

/* AArch64: sp, x29 and x30 while code is run (windlass_code_a64.h). */
struct wl_code_run {
  __u64 pc;
  __u64 sp, fp, lr;
  __u64 record;    /* Where the code stored the pair x29, x30; 0: not stored. */
  __u64 record_fp; /* The value of x29 stored there. */
  __u64 record_lr;
  __u64 value; /* The value loaded last. */
  __u32 word;  /* The instruction at the pc. */
  __u8 fp_known;
  __u8 lr_known;
  __u8 record_fp_known;
  __u8 record_lr_known;
  __u8 lr_framed; /* x30 was loaded from the frame record: where the code stored it, or where x29 pointed. */
  __u8 called;
  __u16 reserved;
};

/* A look-up in a code manager's table (windlass_managed.h). */
#define WL_CODE_ROWS_AT_ONCE 8u /* A power of two. */

/* A shape and its first rows, or other rows of the shape. */
struct wl_code_piece {
  struct wl_code_shape shape;
  struct wl_code_row rows[WL_CODE_ROWS_AT_ONCE];
};

struct wl_code_search {
  __u64 seen;  /* Everything that was read, combined in a word. */
  __u64 block; /* A wl_code_block as a word, and its value when read again. */
  __u64 again;
  struct wl_code_record record; /* The record that was read last; at the end the function's. */
  __u32 number;                 /* Of this record; ~0: none yet. */
  __u32 offset;                 /* Of the address that is looked up. */
  __u32 first;                  /* The first record of a run. */
  __u32 low, high;              /* The searched range: a run, or a shape's rows. */
  __u32 at;                     /* Of a row. */
  __u32 has_rows;               /* The piece has the first rows, too. */
  struct wl_code_piece piece;
};

/* A method of .NET and how far its unwind codes are undone (windlass_coreclr.h). */
#define WL_METHOD_FUNCTIONS 8u /* A power of two. */
#define WL_METHOD_CODES 32u    /* A power of two. */

struct wl_method_search {
  struct wl_code_heap heap;
  __u64 start;  /* Of the method, from the map's base; ~0: none yet. */
  __u64 header; /* Its address. */
  __u32 unit;   /* Of the map. */
  __u32 count;  /* Of functions. */
  struct wl_method_function functions[WL_METHOD_FUNCTIONS];
  __u32 offset;   /* Of the address in its function. */
  __u32 info;     /* Of this function. */
  __u32 at;       /* The next code. */
  __u32 size;     /* Bytes of the frame that the codes so far have made. */
  __u32 saved_fp; /* Where above sp the caller's frame pointer is; ~0: nowhere. */
  __u8 head[4];   /* Of the unwind information, and the codes. */
  __u16 codes[WL_METHOD_CODES];
};

/* Data that a step reads; nothing here outlives the step. */
struct wl_room {
  union {
    __u8 code[WL_CODE_BYTES];        /* Around a pc. */
    __u64 saved[WL_SAVED_REGISTERS]; /* Of a signal frame. */
    __u64 block[WL_LEARNED_BLOCK_BYTES / 8];
    struct wl_code_run run;
    struct wl_code_search search;
    struct wl_method_search method;
    struct wl_steady steady;
  };
  __u64 cfa, base; /* Of the applied rule: its CFA, and its CFA's register. */
  __u64 value;     /* A register in the caller. */
  __u64 pair[2];   /* A frame record: the caller's frame pointer, the return address. */
  __u8 call[8];    /* The code before a return address. */
};

#define WL_STEPS_CHECKED 1u    /* The agent has checked the same step, from a file's code. */
#define WL_STEPS_BY_POINTER 2u /* By the frame pointer, and a call that may lead here. */

#define WL_GENERATED_NOW 1u   /* At run time. */
#define WL_GENERATED_AHEAD 2u /* Ahead of time, and stored in a file. */

/* A code manager's table in the process, as far as this walk has read it. */
struct wl_code_table {
  __u64 address;                /* 0: none yet. */
  struct wl_code_header header; /* Its `recycled` is that of the last read. */
};

/* The functions that an interpreter's evaluator runs (windlass_interpreter.h). */
#define WL_KNOWN_THREADS 16u /* A power of two. */

struct wl_known_thread {
  __u64 thread_pointer;
  __u64 state;
  __u64 space;
};

struct wl_interpreted {
  struct wl_interpreter layout;
  __u64 sp;     /* The thread's stack pointer. */
  __u64 thread; /* CPython: the thread's state, once found. */
  __u64 end;    /* Ruby: the end of the frames. */
  __u64 at;     /* The next frame. */
  __u64 hash;   /* Of the frames so far. */
  __u64 value;  /* The value read last. */
  __u64 text;   /* Ruby: a hash of the names of a frame's code. */
  __u32 count;  /* Frames so far, behind the user frames. */
  __u32 whole;  /* Ruby: how many of these belong to complete activations. */
  __u32 identity;
  __u32 reserved;
  __u64 frame[WL_INTERPRETER_FRAME_BYTES / 8];
  __u64 code[WL_CODE_WORDS];
  __u64 lines[WL_CODE_WORDS];                     /* The first bytes of the code's table of lines. */
  struct wl_known_thread known[WL_KNOWN_THREADS]; /* Outlive the sample. */
};

/* A sum over the frames of a stack (windlass_trail.h). */
struct wl_sum {
  __u64 value;
  __u64 power; /* Of the factor, for the next frame. */
};

struct wl_unwind {
  struct wl_env env;
  struct wl_cursor cursor;
  /* The process: its mapping set, and the number of the address space's state that the set describes. */
  __u32 maps, map_count;
  __u32 space;
  __u32 tgid;
  __u64 epoch;
  __u32 has_interpreter; /* Its struct wl_interpreter stands behind the mapping set. */
  __u64 thread_pointer;  /* Of the thread (x86-64: fs.base, or as wl_process.thread_slot says); 0: not known. */
  __u64 gs_base;         /* x86-64: the same. Under Wine the TEB. */
  /* The result of wl_find_rule for the cursor's pc: a rule, or code without a rule. */
  __u32 ref;       /* Of the rule; 0: none. */
  __u32 x_reg;     /* The extra register of the module's rules, or WL_NO_XREG. */
  __u32 generated; /* Without a rule: WL_GENERATED_NOW, WL_GENERATED_AHEAD, or 0: not generated. */
  __u32 learns;    /* Without a rule: one may have been learned from the agent. */
  __u32 piece;     /* The rule holds for the whole piece of code (WL_PIECE) around the pc. */
  __u32 looked_up; /* The rule was not in the memo. */
  __u32 keeps_x;   /* The extra register is loaded wherever it was saved (windlass_memo.h). */
  __u32 steps;     /* WL_STEPS_*: of the walk so far, in code without rules. */
  __u64 managed;   /* Without a rule: the table of the code manager that may have a rule; 0: none. */
  struct wl_code_table table;
  struct wl_rule rule; /* Of managed code, and of methods of .NET. */
  __u64 plain;         /* The rule of the last step as the memo has it, if that is a plain one; 0: it is not. */
  /* The walk. */
  __u64 hash;        /* Of the kernel's frames, and of what else tells stacks apart. */
  struct wl_sum sum; /* Of the user frames so far. */
  __u32 first;       /* Index of the first user frame in wl_scratch.frames. */
  __u32 frames;      /* User frames so far. */
  __u32 frame_limit;
  __u32 memo_hits;
  __u32 managed_frames;           /* Left by a code manager's rows. */
  __u32 learned_frames;           /* Left as was learned from the agent. */
  __u32 end;                      /* The wl_end, once the walk has ended. */
  __u32 certainty;                /* The wl_certainty of the least certain frame so far. */
  struct wl_way other_stack;      /* Of WL_MAPPING_SWITCHED, once the walk has come to such code. */
  struct wl_held held;            /* Of WL_MAPPING_HELD, once the walk has come to such code. */
  struct wl_way way;              /* That is followed. */
  struct wl_word words[WL_WORDS]; /* Loaded beside the stacks. */
  __u64 kept_sp;                  /* The end of a way; 0: none. */
  __u64 kept_end;                 /* The end of that stack; ~0: not known. */
  __u64 left_at;                  /* Of this stack, if there is another: memory above is not needed; ~0: all is. */
  __u64 next_stack;               /* The sp on the first other stack that the walk came to; 0: none. */
  struct wl_room room;
  struct wl_interpreted interpreted;
  struct wl_learned learned;  /* Of the frame at hand. */
  __u64 taken[WL_MOST_TAKEN]; /* The words to take along of the frame that was left last. */
  __u32 taken_count;
  __u32 reserved;
};

/* A power of two over kernel + user + 2 * interpreted frames, so that an index can be masked. */
#define WL_FRAME_SLOTS 16384u

/* The labels of the thread at hand (windlass_labels.h). The event and the text stand together, as they go into the
 * ring. */
struct wl_labels {
  struct wl_label_source source;
  __u64 value;      /* The word read last. */
  __u64 words[4];   /* Others that were read. */
  __u64 bucket[33]; /* Of Go's map, without the pointer to the next. */
  __u64 hash;       /* Of the text so far. */
  __u32 count;      /* Go: labels so far. */
  __u32 size;       /* Bytes of the text. */
  struct wl_label_event event;
  union wl_label_text text;
};

/* A sample in work. The event and its frames stand together, as they go into the ring. */
struct wl_scratch {
  struct wl_unwind unwind;
  /* The end of the stack, if it is above sp: the main thread's arguments, or the thread's control block. */
  __u64 stack_top, thread_block;
  __u64 machine; /* The wl_machine of the code at hand. */
  /* 1: the sample counts at once. 0: it begins a wait, whose key is `key`. */
  __u64 repeats;
  struct wl_stack_key key;
  __u64 busy;               /* With wl_can_be_interrupted: a sample is being taken. */
  __u64 walk_window, walks; /* Of waits: in the window of time at hand. */
  /* How long samples took in the window of time at hand, when this one began, and 1 if it has to be short. */
  __u64 work_window, worked, begun, late;
  /* Of all frames that have any, a wl_taken_head and the words. */
  __u64 taken_words;
  __u64 taken[WL_MAX_TAKEN_WORDS];
  struct wl_trail_walk trail;
  struct wl_labels labels;
  struct wl_stack_event event;
  __u64 frames[WL_FRAME_SLOTS];
};

#endif
