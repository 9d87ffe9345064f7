/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The dense unwind table, as kernel side and user side read it. Plain C, for the BPF programs, for the same C compiled
 * as user code, and for the C++ library; so are windlass_process_layout.h, windlass_event_layout.h and
 * windlass_interpreter_layout.h. Sizes are pinned by tests.
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
#ifndef WINDLASS_TABLE_LAYOUT_H
#define WINDLASS_TABLE_LAYOUT_H

#include "windlass_types.h"

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
  WL_CFA_THREAD = 5,      /* x86-64: CFA = [[[[fs.base + way_first] + 8 * way_second] + 8 * last.words] + 8 * way_sp]
                             + 8 * last.addend; no caller if the third load gives 0 (Go's system stacks) */
  WL_CFA_MOVABLE = 6, /* CFA = [[reg + owner] + 8 * top] - [reg + 8 * last.words] + 8 * last.addend: a stack that may
                         have moved, by its upper end (C that Go calls) */
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
  WL_REG_ARG = 7, /* value = [register number arg_reg + offset], as it was in the callee; with WL_CFA_REG only (Wine's
                     system calls, until they have left the stack they came on) */
};

#define WL_RULE_SIGNAL 1 /* The caller's pc is an interrupted instruction; every register is in the signal frame. */
#define WL_RULE_SIGNED 2 /* AArch64: the return address has an authentication code. */
#define WL_RULE_LEFT \
  4 /* The thread's data lead to another stack than the callers': WL_CFA_THREAD ends the callers' walk. */

#define WL_RULE_WORDS 8 /* WL_CFA_MEM: cfa_arg counts words, not bytes. */

/* By what a frame's caller is known, and what an address of 0 says there. */
enum wl_proof {
  WL_PROOF_CALLED = 0, /* A row of code that is called: behind a call, address 0 ends the stack. */
  WL_PROOF_NO_END = 1, /* A row of code that is jumped into, or was taken for a leaf: address 0 proves no end. */
  WL_PROOF_CODE = 2,   /* No row: the code between two functions leads to the caller as the row before it. */
};

/* The last load of WL_CFA_THREAD and WL_CFA_MOVABLE. These rules track no extra register. */
struct wl_last_load {
  __u16 addend : 3; /* Words that are added to the CFA. */
  __u16 words : 13; /* From where the load counts. */
};

/* cfa_kind says which member of a union counts. */
struct wl_rule {
  __u8 cfa_kind; /* wl_cfa_kind */
  union {
    __u8 cfa_reg;    /* DWARF register number */
    __u8 way_second; /* WL_CFA_THREAD */
  };
  __u8 fp_kind : 4; /* wl_reg_kind, frame pointer (rbp, x29) */
  __u8 ra_kind : 4; /* wl_reg_kind, return address */
  __u8 x_kind : 4;  /* wl_reg_kind, the module's extra register */
  __u8 flags : 4;   /* WL_RULE_* */
  union {
    __s32 cfa_offset;
    __s32 way_first; /* WL_CFA_THREAD */
    __s32 owner;     /* WL_CFA_MOVABLE */
  };
  __s16 fp_offset; /* Bytes, or a register number. */
  __s16 ra_offset;
  union {
    __s16 x_offset;
    struct wl_last_load last; /* WL_CFA_THREAD, WL_CFA_MOVABLE */
  };
  union {
    __u8 cfa_arg; /* WL_CFA_MEM, WL_CFA_PLT */
    __u8 arg_reg; /* WL_CFA_REG: a register number, see WL_REG_ARG */
    __u8 way_sp;  /* WL_CFA_THREAD */
    __u8 top;     /* WL_CFA_MOVABLE */
  };
  __u8 proof; /* wl_proof */
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

#endif
