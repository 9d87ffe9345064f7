/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * What the kernel side knows of a process: its mapping set, and the state of its address space.
 */
#ifndef WINDLASS_PROCESS_LAYOUT_H
#define WINDLASS_PROCESS_LAYOUT_H

#include "windlass_types.h"

/* A process's mapping set, an object of the arena: wl_maps_head, then wl_mapping[map_count] sorted by begin. */
struct wl_maps_head {
  __u32 space; /* 0 once the set is freed: so a stale reference (a fork raced the free) is recognised. */
  __u32 count;
};

/* An executable mapping. */
struct wl_mapping {
  __u64 begin;
  __u64 end;
  __u64 bias; /* Address in the process - bias = address in the module. MANAGED: where the code manager's table or the
               * jitdump is mapped. */
  __u32 module;
  __u32 kind; /* wl_mapping_kind */
};

/* The kind of code in a mapping. All kinds but the first are code generated at run time, which has no table in the
 * arena. A runtime whose frames need a way of unwinding of their own has a kind of its own. */
enum wl_mapping_kind {
  WL_MAPPING_FILE = 0,      /* A module's. */
  WL_MAPPING_GENERATED = 1, /* Of an unknown runtime, or of a file that could not be read. */
  WL_MAPPING_MANAGED = 2,   /* Published functions: by a code manager's table, which is read in the process's memory
                             * (windlass_code_layout.h), or by a jitdump, which the agent reads. */
  WL_MAPPING_SWITCHED = 3,  /* The code runs on a stack of the runtime's own (Erlang's processes), and the agent
                             * unwinds it. `bias` says where a thread keeps its stack pointer there. So a sample of a
                             * callee on the thread's own stack has both stacks. The way is a WL_CFA_THREAD's
                             * cfa_offset, cfa_reg, cfa_arg and x_offset, as WL_WAY packs them. */
  WL_MAPPING_HELD = 4,      /* While the code calls, its caller's frame is not on the stack but in memory of the runtime
                             * (V8's deoptimised frames). The agent unwinds it. `bias` says where (WL_HELD). */
};
/* The parts of a way to a stack pointer, packed in a word; 0: none. end_words is the distance from the word with the
 * stack pointer to the word with the stack's end; 0: the end is not kept. */
#define WL_WAY(cfa_offset, cfa_reg, cfa_arg, x_offset, end_words)                             \
  ((__u64)(__u16)(cfa_offset) | (__u64)(__u8)(cfa_reg) << 16 | (__u64)(__u8)(cfa_arg) << 24 | \
   (__u64)(__u16)(x_offset) << 32 | (__u64)(__u8)(end_words) << 48)

/* Go: from the thread's pointer to the stack pointer of the goroutine that the thread runs: g (runtime2.go), its m,
 * m.curg, and the sched.sp of that g. Offsets for releases 1.14 to 1.23, and from 1.25 on, in programs for x86-64
 * without C. */
#define WL_GO_WAY_OF_1_14 WL_WAY(-8, 0x30 / 8, 0x38 / 8, 0xc0, 0)
#define WL_GO_WAY_OF_1_25 WL_WAY(-8, 0x30 / 8, 0x38 / 8, 0xb8, 0)

/* A frame held in an object (V8). [sp] leads to the word before the end of the stack. That word is the address of an
 * object. At `input`, the object has the address of another object. The second object's first word is the size of the
 * frame. Its words from `content` on are the words of the frame; the last is the word before the stack's end. The frame
 * pointer still has its value from the stack. */
#define WL_HELD(input, content) ((__u64)(__u16)(input) | (__u64)(__u16)(content) << 16)

#define WL_PROCESS_INTERPRETED 1u /* A wl_interpreter stands behind the last mapping (windlass_interpreter_layout.h). \
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
};

#endif
