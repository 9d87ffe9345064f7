/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Every layout that kernel side and user side share: the dense unwind table, the process maps, the events. Plain C, for
 * the BPF programs, for the same C compiled as user code, and for the C++ library. Sizes are pinned by tests.
 *
 * The arena. Pages, palettes, directories and mapping sets live in a growing address space of 1 MiB chunks. A reference
 * (u32) counts 8-byte units from the arena's start, so 32 GiB can be named. No object straddles a chunk.
 *
 * The table of a module.
 *
 * - directory: a u32 ref of a page for every 64 KiB of the module's address range; 0 = no page.
 * - page: wl_page_head, which is u16 last[256]. Then u16 rows[n]. Then, 8-aligned, u64 escapes: {count},
 *   wl_escape[count].
 * - palette: wl_rule[255], the module's most used rules. Rule id 255 = look the row up in the page's escapes.
 *
 * Rows are sorted by address, across the blocks of the page. A row is (low byte of the address << 8 | rule id). last[b]
 * is the index of the last row at or before the end of the 256-byte block b. So the rows of block b are (last[b-1],
 * last[b]]. If none of these is at or before the address, row last[b-1] governs: it is in force when the block begins.
 * Row 0 is always at page offset 0. For example, an address 0x1234 is in block 0x12, and the search is for the low byte
 * 0x34.
 */
#ifndef WINDLASS_LAYOUT_H
#define WINDLASS_LAYOUT_H

#if !defined(__VMLINUX_H__)
#include <linux/types.h>
#endif

#include "windlass_ends.h"
#include "windlass_wine_layout.h"

#define WL_CHUNK_SHIFT 20
#define WL_CHUNK_SIZE (1u << WL_CHUNK_SHIFT)
#define WL_CHUNK_SLACK 64u /* readable bytes after a chunk, so that a masked offset plus any struct stays inside */
#define WL_REF_SHIFT 3
#define WL_MAX_CHUNKS 32768u

#define WL_PAGE_SHIFT 16
#define WL_BLOCK_SHIFT 8
#define WL_BLOCKS 256u
#define WL_RULE_ESCAPE 255u
#define WL_PALETTE_RULES 255u
#define WL_MAX_PAGES ((1u << 18) - 2) /* a directory fits any chunk, the first too: 16 GiB of code in one module */

/* ---- one rule: from the callee's registers to the caller's pc, sp, frame pointer and the module's extra register ---
 */

enum wl_cfa_kind {
  WL_CFA_NONE = 0,        /* no row covers the address: all-zero rule, always palette index 0 */
  WL_CFA_REG = 1,         /* CFA = reg + cfa_offset */
  WL_CFA_MEM = 2,         /* CFA = [reg + cfa_offset] + cfa_arg   (DRAP frames, signal frames; OpenSSL: + 8) */
  WL_CFA_PLT = 3,         /* CFA = reg + cfa_offset + ((pc & 15) >= cfa_arg ? 8 : 0)   (lazy PLT stubs) */
  WL_CFA_UNSUPPORTED = 4, /* There is a row, but only user space can evaluate it. */
  WL_CFA_THREAD = 5,      /* x86-64: CFA = [[[[fs.base + cfa_offset] + 8 * cfa_reg] + (x_offset & ~7)] + 8 * cfa_arg]
                             + 8 * (x_offset & 7); no caller if the third load gives 0 (Go's system stacks) */
  WL_CFA_MOVABLE = 6,     /* CFA = [[reg + cfa_offset] + 8 * cfa_arg] - [reg + (x_offset & ~7)] + 8 * (x_offset & 7): a
                             stack that may have moved, by its upper end (C that Go calls) */
};

enum wl_reg_kind {
  WL_REG_SAME = 0,      /* value = register */
  WL_REG_CFA = 1,       /* value = [CFA + offset] */
  WL_REG_BASE = 2,      /* value = [cfa_reg + offset], cfa_reg as it was in the callee (signal frames, DRAP); with
                           WL_CFA_THREAD from where the last word was loaded */
  WL_REG_IN_REG = 3,    /* value = register number `offset` */
  WL_REG_CFA_VALUE = 4, /* value = CFA + offset */
  WL_REG_UNDEFINED = 5, /* unknown; for the return address: end of stack */
  WL_REG_FP = 6,  /* value = [frame pointer + offset], as it was in the callee (DRAP, before the CFA moves there) */
  WL_REG_ARG = 7, /* value = [register number cfa_arg + offset], as it was in the callee; with WL_CFA_REG only (Wine's
                     system calls, until they have left the stack they came on) */
};

#define WL_RULE_SIGNAL 1 /* The caller's pc is an interrupted instruction; every register is in the signal frame. */
#define WL_RULE_SIGNED 2 /* AArch64: the return address has an authentication code. */
#define WL_RULE_LEFT \
  4 /* The thread's data lead to another stack than the callers': WL_CFA_THREAD ends the callers' walk. */
#define WL_RULE_NO_END 8 /* The code may not be the code that it was taken for: address 0 proves no end. */

struct wl_rule {
  __u8 cfa_kind;    /* wl_cfa_kind */
  __u8 cfa_reg;     /* DWARF register number */
  __u8 fp_kind : 4; /* wl_reg_kind, frame pointer (rbp, x29) */
  __u8 ra_kind : 4; /* wl_reg_kind, return address */
  __u8 x_kind : 4;  /* wl_reg_kind, the module's extra register */
  __u8 flags : 4;   /* WL_RULE_* */
  __s32 cfa_offset;
  __s16 fp_offset; /* Bytes, or a register number. */
  __s16 ra_offset;
  __s16 x_offset;
  __u8 cfa_arg;  /* Of the CFA; with WL_CFA_REG a register number, see WL_REG_ARG. */
  __u8 reserved; /* 0 */
};

struct wl_page_head {
  __u16 last[WL_BLOCKS];
};

/* A row whose rule is not in the palette: its address within the page, and its rule's place in the arena. In a table
 * that is not loaded into an arena yet, `rule` is an index into the table's rule list. */
struct wl_escape {
  __u32 page_offset;
  __u32 rule;
};

#define WL_NO_XREG 0xffu

#define WL_MODULE_PENDING 0 /* The table is being compiled: samples hand over their raw stack. */
#define WL_MODULE_READY 1
#define WL_MODULE_NO_TABLE 2 /* No unwind information at all (JIT code, stripped code): frame-pointer rule. */

struct wl_module {
  __u64 first_page; /* Module address >> WL_PAGE_SHIFT of directory entry 0. */
  __u32 page_count;
  __u32 directory; /* A ref. */
  __u32 palette;   /* A ref. */
  __u8 state;      /* WL_MODULE_* */
  __u8 x_reg;      /* DWARF number of the extra register that its rows track, or WL_NO_XREG. */
  __u16 reserved;
};

/* ---- processes ----------------------------------------------------------------------------------------------------
 */

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

/* The value of the map tgid -> process. `space` names a state of an address space, and is never used twice. So a memo
 * entry tagged with `space` is never stale: a set published for other code at an address has another number. Generated
 * code leaves nothing in the memo. So code that a runtime replaces without notice is not met there either. */
struct wl_process {
  __u32 maps; /* The ref of wl_mapping[map_count]; wl_maps_head stands before it. */
  __u32 map_count;
  __u32 space;
  __u32 flags;
  __u64 epoch; /* Must be the process's current epoch. exec, fork and unmap give the process a new epoch, which their
                * event has. */
};

/* How to read an interpreter's list of frames at the sample's moment (windlass_interpreter.h): where the interpreter
 * keeps the list. Stored behind a set's last mapping, if WL_PROCESS_INTERPRETED is set. Offsets in bytes. */
#define WL_PROCESS_INTERPRETED 1u

enum wl_activations { /* how one activation of the evaluator is told from the next in the list of frames */
                      WL_ACTIVATION_EACH = 0,  /* each frame is one (to CPython 3.10) */
                      WL_ACTIVATION_ENTRY = 1, /* its outermost frame is marked by a byte that is not 0 (3.11) */
                      WL_ACTIVATION_SHIM =
                          2, /* behind its outermost frame is one of the evaluator's own, whose byte is WL_OWNED_BY_C */
};
#define WL_OWNED_BY_C 3

#define WL_INTERPRETER_FRAME_BYTES 128u /* Of a frame, at most. */
#define WL_CODE_WORDS 16u               /* Of a code object: the words that make its identity. */

struct wl_python {
  __u64 interpreters;     /* Address of the pointer to the first interpreter. */
  __u32 next_interpreter; /* In an interpreter: the next. */
  __u32 threads;          /* In an interpreter: the first thread state. */
  __u16 next_thread;      /* In a thread state: the next. */
  __u16 thread_id;        /* In a thread state: the thread's pointer (fs.base), as pthread_self() gives it. */
  __u16 current;          /* In a thread state: the innermost frame; with has_c_frame, the C frame. */
  __u16 c_frame_current;  /* In a C frame: the innermost frame. */
  __u16 frame_size;       /* Bytes that are read. */
  __u16 frame_code;       /* In a frame: the code object. */
  __u16 frame_previous;   /* In a frame: the frame that called it. */
  __u16 frame_place;      /* In a frame: its place, an address, or with code_begin == 0 a number. */
  __u16 frame_mark;       /* In a frame: the byte for wl_activations. */
  __u16 code_begin;       /* In a code object: its bytecode. */
  __u16 code_words;       /* In a code object: the first of WL_CODE_WORDS words that never change. */
  __u16 code_version;     /* In a code object: a number that no other code object ever has (from 3.12 on); 0: none. */
  __u16 code_name;        /* In a code object: the name, a string. */
  __u16 code_file;        /* In a code object: the file, a string. */
  __u16 code_lines;       /* In a code object: the table of lines, bytes. */
  __u16 string_hash;      /* In a string. */
  __u16 bytes_size;       /* In bytes: their number. */
  __u16 bytes_begin;      /* In bytes: the bytes themselves. */
  __u8 activations;       /* A wl_activations. */
  __u8 has_c_frame;
  __u8 skipped_word; /* The word of WL_CODE_WORDS that does change; WL_CODE_WORDS: none. */
  __u8 reserved;
};

/* Ruby 3.1, whose structures never change (windlass_ruby.h). */
struct wl_ruby {
  __u64 module;  /* Address of the number of the library's thread-local storage, as written by the linker. */
  __u64 context; /* In that storage: the pointer to the execution context that runs. */
};

enum wl_interpreter_kind { WL_CPYTHON = 0, WL_RUBY = 1 };

struct wl_interpreter {
  __u32 kind; /* wl_interpreter_kind */
  __u32 reserved;
  union {
    struct wl_python python;
    struct wl_ruby ruby;
  };
};

/* ---- events to the agent ------------------------------------------------------------------------------------------
 */

#define WL_MAX_USER_FRAMES 8192u
#define WL_MAX_KERNEL_FRAMES 127u /* The most that bpf_get_stack gives by default (kernel.perf_event_max_stack). */
#define WL_MAX_RAW_STACK (128u * 1024u)
#define WL_MAX_RAW_PIECE (WL_MAX_RAW_STACK / 2) /* Of each stack, if there are two. */
#define WL_RAW_PAGE 4096u                       /* The unit of copying; no page of any kernel is smaller. */
#define WL_MAX_RAW_PAGES 64u                    /* The pages that a copy spans, with pages left out. */
#define WL_RED_ZONE 128u
#define WL_SWITCH_ROOM (20u * 1024u) /* Bytes of an Erlang scheduler's registers, below its caller. */
/* Bytes of the arguments. By these the agent knows where the kernel left sp for the process's first instruction. */
#define WL_ARGUMENTS 512
#define WL_COMM 16

enum wl_event_type {
  WL_EVENT_STACK = 1, /* A wl_stack_event: a sample, usually of a stack not seen before; repeats are counted in the
                       * kernel. Samples of a stack = its events + its count. */
  WL_EVENT_RAW = 2,   /* A wl_raw_event: registers and raw stack, for the agent to unwind. */
  WL_EVENT_EXEC = 3,  /* A wl_process_event. */
  WL_EVENT_FORK = 4,  /* A wl_process_event. */
  WL_EVENT_EXIT = 5,  /* A wl_process_event: the last thread has ended. */
  WL_EVENT_UNMAP = 6, /* A wl_process_event: a mapping in [address, address + length) is gone, others may come. */
};

/* The common part of samples with the same stack. */
struct wl_stack_key {
  __u64 hash; /* Of all frames, end and space. */
  __u32 tgid;
  __u32 tid;
};

struct wl_event_head {
  __u32 type; /* wl_event_type */
  __u32 cpu;
  __u64 time; /* CLOCK_MONOTONIC ns, also the clock of the agent's perf events. */
  __u32 tgid;
  __u32 tid;
  char comm[WL_COMM];
};

struct wl_stack_event {
  struct wl_event_head head;
  __u64 hash;
  __u32 space;
  __u16 user_frames;
  __u8 kernel_frames;
  __u8 end : 6;       /* wl_end */
  __u8 certainty : 2; /* wl_certainty */
  __u64 interpreted_frames;
  /* Followed by u64 kernel[kernel_frames], then u64 user[user_frames], then wl_interpreted_frame[interpreted_frames],
   * each innermost first. A user frame with WL_FRAME_EXACT set is an instruction pointer (frame 0, below a signal
   * frame). Otherwise it is a return address. */
};
#define WL_FRAME_EXACT (1ull << 63)

/* A function that an evaluator runs. A sample has all of the thread's, or none. */
struct wl_interpreted_frame {
  __u64 code;     /* Address of the code object, with WL_INTERPRETED_LAST. */
  __u32 identity; /* Of the code object at the sample's moment. */
  __u32 place;    /* In its bytecode: bytes (to CPython 3.9), instructions (3.10), bytes; words (Ruby). */
};
#define WL_NO_PLACE 0xffffffffu          /* The function is written in C. */
#define WL_INTERPRETED_LAST (1ull << 63) /* The outermost function that this activation of the evaluator runs. */
#define WL_MAX_INTERPRETED_FRAMES 4000u
#define WL_MAX_RAW_INTERPRETED_FRAMES 1024u /* With a raw stack. */

/* The machine whose registers a raw event holds. */
enum wl_machine {
  WL_MACHINE_X86_64 = 0,  /* 16 registers, then the pc */
  WL_MACHINE_AARCH64 = 1, /* x0 to x30, sp, then the pc */
  WL_MACHINE_I386 = 2,    /* 32-bit code on x86-64: x86-64's registers, whose lower halves are i386's. */
};
#define WL_RAW_REGISTERS 33u /* Room for any machine's. */

/* A word of the process's memory; none if the address is 0. */
struct wl_word {
  __u64 address;
  __u64 value;
};

/* Words of other memory than stacks that a sample has, as far as the walk read them. */
enum wl_sampled_word {
  /* On a way from the thread's pointer to a stack pointer of another stack (WL_CFA_THREAD): */
  WL_WAY_FIRST = 0, /* By the thread's pointer: the g of Go whose stack the thread is on. */
  WL_WAY_SECOND = 1,
  WL_WAY_KEEPER = 2, /* The keeper of the stack pointer: the g of Go that the thread runs, or will run again. */
  WL_WAY_SP = 3,     /* The stack pointer. */
  WL_WAY_PC = 4,     /* The word behind it. */
  WL_WAY_LOW = 5,    /* The keeper's first two words: its stack's bounds (Go). */
  WL_WAY_HIGH = 6,
  /* Of a frame that is in an object instead of on the stack (WL_HELD): */
  WL_HELD_FRAME = 7, /* The frame's description. */
  WL_HELD_SIZE = 8,
  WL_HELD_FP = 9,      /* Where the frame's frame pointer leads in the frame: the caller's frame pointer. */
  WL_HELD_RETURN = 10, /* The return address behind it. */
};
#define WL_WAY_WORDS 7u /* the first ones */
#define WL_WORDS 11u

struct wl_raw_event {
  struct wl_event_head head;
  __u64 regs[WL_RAW_REGISTERS]; /* User registers by DWARF number, then the pc. */
  __u32 reason;                 /* The wl_end that made the kernel side give up. */
  __u32 space;
  __u32 stack_size; /* Bytes copied of the stack, from stack_address up. */
  __u16 code_size;  /* Bytes of code copied from around the pc, starting at pc - code_before. */
  __u8 code_before;
  __u8 kernel_frames;
  __u64 second_address; /* Where the walk had come to, if that is on another stack (Wine's Windows side). */
  __u32 second_size;
  __u32 machine; /* wl_machine */
  /* The pages that the copies have: bit n is page n, counted from the page that the copy begins in. Pages that could
   * not be read are left out of the copies: never touched, as most of a large local array, or taken out for a
   * moment. */
  __u64 stack_pages;
  __u64 second_pages;
  __u64 stack_address;  /* Below the stack pointer by the red zone, where leaves keep data (psABI 3.2.2). */
  __u64 gs_base;        /* x86-64: of the thread; 0: none. */
  __u64 teb_frame;      /* The word at gs_base + WL_WINE_TEB_FRAME. */
  __u64 thread_pointer; /* x86-64: fs.base; 0: not known. */
  struct wl_word words[WL_WORDS];
  __u64 interpreted_frames;
  /* Followed by u64 kernel[kernel_frames], u8 code[code_size padded to 8], u8 stack[stack_size], u8
   * second_stack[second_size], wl_interpreted_frame[interpreted_frames]. */
};

struct wl_process_event {
  struct wl_event_head head;
  __u64 epoch;   /* The new epoch; FORK: the child's. */
  __u64 address; /* UNMAP: the first address. FORK: the child's tgid. */
  __u64 length;
};

#endif
