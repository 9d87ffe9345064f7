/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * What the kernel side knows of a process: its mapping set, and the state of its address space.
 */
#ifndef WINDLASS_PROCESS_LAYOUT_H
#define WINDLASS_PROCESS_LAYOUT_H

#include "windlass_labels_layout.h"
#include "windlass_types.h"

/* A process's mapping set, an object of the arena: wl_maps_head, then wl_mapping[map_count] sorted by begin. */
struct wl_maps_head {
  __u32 space; /* 0 once the set is freed: so a stale reference (a fork raced the free) is recognised. */
  __u32 count;
};

/* The kind of code in a mapping. All kinds but the first are code generated at run time, which has no table in the
 * arena. A runtime whose frames need a way of unwinding of their own has a kind of its own. */
enum wl_mapping_kind {
  WL_MAPPING_FILE = 0,      /* A module's. */
  WL_MAPPING_GENERATED = 1, /* Of an unknown runtime, or of a file that could not be read. */
  WL_MAPPING_MANAGED = 2,   /* Published functions: by a code manager's table, which is read in the process's memory
                             * (windlass_code_layout.h), or by a jitdump, which the agent reads. */
  WL_MAPPING_SWITCHED = 3,  /* The code runs on a stack of the runtime's own (Erlang's processes), and the agent
                             * unwinds it. A sample of a callee on the thread's own stack has both stacks. */
  WL_MAPPING_HELD = 4,      /* While the code calls, its caller's frame is not on the stack but in memory of the runtime
                             * (V8's deoptimised frames). The agent unwinds it. */
  WL_MAPPING_LEARNED = 5,   /* A runtime's code. Frames that the agent has unwound once are left as the agent said
                             * (windlass_learned_layout.h). The agent unwinds the others. */
};

/* Where a thread keeps the stack pointer of another stack, by loads from the thread's pointer on:
 *
 *   keeper = [[[fs.base + first] + 8 * second] + 8 * keeper]
 *   stack pointer = [keeper + 8 * sp]; the stack's end = [keeper + 8 * (sp + end)] */
struct wl_way {
  __s16 first;
  __u8 second;
  __u8 sp;
  __u16 keeper;
  __u8 end;   /* 0: the end is not kept. */
  __u8 there; /* 0: there is no way. */
} __attribute__((aligned(8)));

/* Go: from the thread's pointer to the stack pointer of the goroutine that the thread runs: g (runtime2.go), its m,
 * m.curg, and the sched.sp of that g. Offsets for releases 1.14 to 1.23, and from 1.25 on, in programs for x86-64
 * without C. */
#define WL_GO_WAY_OF_1_14 \
  { .first = -8, .second = 0x30 / 8, .sp = 0x38 / 8, .keeper = 0xc0 / 8, .end = 0, .there = 1 }
#define WL_GO_WAY_OF_1_25 \
  { .first = -8, .second = 0x30 / 8, .sp = 0x38 / 8, .keeper = 0xb8 / 8, .end = 0, .there = 1 }

/* A frame held in an object (V8). [sp] leads to the word before the end of the stack. That word is the address of an
 * object. At `input`, the object has the address of another object. The second object's first word is the size of the
 * frame. Its words from `content` on are the words of the frame; the last is the word before the stack's end. The frame
 * pointer still has its value from the stack. */
struct wl_held {
  __u16 input;
  __u16 content;
  __u32 there; /* 0: no frame is held. */
};

/* An executable mapping. */
struct wl_mapping {
  __u64 begin;
  __u64 end;
  union {                /* by `kind`; GENERATED has none */
    __u64 bias;          /* FILE: address in the process - address in the module */
    __u64 table;         /* MANAGED: where the code manager's table or the jitdump is mapped */
    struct wl_way way;   /* SWITCHED: to the stack that the code runs on */
    struct wl_held held; /* HELD */
  };
  __u32 module;
  __u32 kind; /* wl_mapping_kind */
};

/* What becomes of a process that was chosen. */
enum wl_target {
  WL_TARGET_SAMPLED = 1,
  WL_TARGET_HELD = 2, /* It is sampled from its next exec on: until then it is no program of interest. */
};

#define WL_PROCESS_INTERPRETED                                                           \
  1u /* A wl_interpreter stands behind the last mapping (windlass_interpreter_layout.h). \
      */

/* The value of the map tgid -> process. `space` names a state of an address space, and is never used twice. So a memo
 * entry tagged with `space` is never stale: a set published for other code at an address has another number. Generated
 * code leaves nothing in the memo. So code that a runtime replaces without notice is not met there either. */
struct wl_process {
  __u32 maps; /* The ref of wl_mapping[map_count]; wl_maps_head stands before it. */
  __u32 map_count;
  __u32 space;
  __u32 flags; /* WL_PROCESS_INTERPRETED */
  __u64 epoch; /* Must be the process's current epoch. exec, fork and unmap give the process a new epoch, which their
                * event has. */
  struct wl_label_source labels; /* Of its threads. */
  __u64 thread_slot; /* Windows: the thread's pointer is the word at this offset in the TEB. From WL_LEAST_VARIABLE on:
                      * at the offset that a variable at this address has. 0: the thread's pointer is fs.base. */
};

#define WL_LEAST_VARIABLE 0x10000u
#define WL_TEB_BYTES 0x2000u

#endif
