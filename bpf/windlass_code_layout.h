/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * A code manager's table: from an address of code made at run time to its function, the function's rows and its name.
 *
 * The table is a run of bytes without pointers, in a memfd called WL_CODE_NAME. Its process has mapped the memfd once,
 * shared. The process writes the table, and reads it in signal handlers. BPF programs, other processes and core files
 * read it directly: by loads of 4 or 8 bytes, or as a copy. The table outlives its process as long as the memfd is
 * held. Plain C. Sizes are pinned by tests.
 *
 * Code is [begin, end) in its process, 4 GiB at most. A function's place counts bytes from `begin`, and is called an
 * offset here. All other places count bytes from the header, or from the section named. Everything is little-endian.
 * Headers, blocks and records are 8-aligned, everything else is 4-aligned.
 *
 * Blocks. There is a wl_code_block for each 1024 bytes of code, behind a first block that stays empty. The functions
 * that begin in a block have consecutive records, ascending: a run, which begins at record `first`. The map word is
 * eight nibbles, the least significant first: how many functions begin in each bucket of 128 bytes. So a nibble map
 * leads to the record itself. For example, the map word 0x21 says that a function begins in the first bucket and two in
 * the second. Two words are not counts:
 *   0                No function begins in the block. But the function of record `first`, if not 0, reaches into it.
 *   WL_CODE_CROWDED  15 or more begin in a bucket: record `first` is none, its size says how many follow in the run.
 *
 * Look-up of offset o, in block b = (o >> 10) + 1:
 *   1. In b's run, the records of earlier buckets begin before o. Among those of o's own bucket (or, crowded, of all),
 *      find by halving how many begin at or before o. If there are any, the last of these is the record.
 *   2. Else the record is the function that reaches into b. With the word 0, that is b's `first`. Else it is from block
 *      b - 1: with the word 0 its `first`, else the last of its run. Record 0 is none.
 *   3. The function contains o if begin <= o and o - begin < size. Else no function does.
 *
 * This takes two loads for most offsets, and for all of a function's blocks but the first.
 *
 * Rows. A record may have a shape: a wl_code_shape and its rows. A row is in force from its `at` to the next row's, the
 * last row to the function's end. `at` counts from the function's begin. With WL_CODE_FROM_END it counts back from the
 * function's end, so that functions of any size share a shape. A row has the rule for trace walks, and the place of a
 * wl_code_full for all registers. Both are 0 if nothing is known.
 *
 * Changes. A run never changes: a block gets another run, by a single store of 8 bytes. When runs, shapes and names are
 * taken away, first no block leads to them any more. Then `recycled` grows, and only then their bytes change. So a
 * reader reads `recycled`, reads all that is needed, and reads `recycled` again. If it is the same, the result is
 * right. Else the reader begins again, at most WL_CODE_RETRIES times. The loads must stay in this order (acquire loads,
 * if the machine reorders loads). A reader that copies by loads of unknown size has a block when it is the same twice.
 * A function that is on a stack is not taken away. So a walker that finds a change each time may say so and end.
 *
 * Past. A profiler names a sample after the code has gone. So a function that is taken away leaves a wl_code_past, with
 * its shape and name, which are freed only when this entry is dropped. past_end entries were ever written, and
 * past_first of these dropped; entry n is in place n % past_count. At a time t, an address was in the entry that
 * contains it with the least `time` above t: the last such entry from past_end backwards. Without such an entry, it was
 * in the present function. An entry is written before its function leaves its run, and dropped (past_first) before
 * `recycled` grows. So if no present function is found either, look again if past_end has grown meanwhile.
 *
 * Readers trust nothing: every place is checked against its section's size, and every loop has one of the bounds
 * here.
 */
#ifndef WINDLASS_CODE_LAYOUT_H
#define WINDLASS_CODE_LAYOUT_H

#include "windlass_table_layout.h"

#define WL_CODE_NAME "windlass-code"        /* Of the memfd: /memfd:windlass-code in maps and mmap events. */
#define WL_CODE_MAGIC 0x65646f632d6c7700ull /* \0wl-code. */
#define WL_CODE_VERSION 2u                  /* Another number: another layout. */
#define WL_CODE_BLOCK_SHIFT 10              /* Bytes of code in a block. */
#define WL_CODE_BUCKET_SHIFT 7              /* Bytes of code in a nibble's bucket. */
#define WL_CODE_CROWDED 0xffffffffu         /* A map word; other words have no nibble of 15. */
#define WL_CODE_MAX_RUN 1024u               /* Functions that begin in a block: one a byte. */
#define WL_CODE_MAX_HALVINGS 11u            /* Of a run, until the place is found. */
#define WL_CODE_RETRIES 8u
#define WL_CODE_FROM_END 0x80000000u /* In wl_code_row.at. */
#define WL_CODE_MAX_SIZE 0x7fffffffu /* Bytes of a function. */
#define WL_CODE_MAX_ROWS 65535u      /* Of a shape: 16 halvings find a row. */
#define WL_CODE_MAX_NAME 65535u      /* Bytes. */

struct wl_code_header {
  __u64 magic;   /* WL_CODE_MAGIC; written last */
  __u32 version; /* WL_CODE_VERSION */
  __u32 machine; /* wl_machine */
  __u64 size;    /* of everything: a multiple of 8 */
  __u64 begin;   /* of the code, in the process that writes this */
  __u64 end;
  __u64 recycled; /* grows when something has been taken away */
  __u64 changes;  /* grows with each change */
  /* Sections, each within `size`. */
  __u64 blocks;  /* wl_code_block[block_count] */
  __u64 records; /* wl_code_record[record_count]; number 0 is none */
  __u64 name_of; /* __u32[record_count]: for each record its name, u32 length and the bytes, by its place in names */
  __u64 shapes;  /* shape_bytes; shapes are named by their place in it, 0 is none */
  __u64 names;   /* name_bytes; likewise */
  __u32 block_count;
  __u32 record_count;
  __u32 shape_bytes;
  __u32 name_bytes;
  __u32 functions;    /* there are now */
  __u32 records_used; /* no record from this number on was ever used */
  __u64 past;         /* wl_code_past[past_count], a section, too */
  __u64 past_first;
  __u64 past_end;
  __u32 past_count;
  __u32 reserved;
};

struct wl_code_block {
  __u32 map;
  __u32 first; /* record */
};

struct wl_code_record {
  __u32 begin; /* offset */
  __u32 size;
  __u32 shape; /* in shapes; 0: nothing is known, its code is to be followed */
  __u32 user;  /* the runtime's own number */
};

struct wl_code_past {
  __u64 time;                           /* CLOCK_MONOTONIC, ns, when it was taken away; those of an update have one */
  __u32 begin, size, shape, name, user; /* as its record had them */
  __u32 reserved;
};

/* The block of an offset. */
static inline __u32 wl_code_block_of(__u32 offset) { return (offset >> WL_CODE_BLOCK_SHIFT) + 1; }

/* The place in a map word of the nibble for an offset's bucket. */
static inline __u32 wl_code_nibble_shift(__u32 offset) { return (offset >> WL_CODE_BUCKET_SHIFT & 7) * 4; }

/* How many functions begin in a bucket of the block; for a map word that is not crowded. */
static inline __u32 wl_code_begin_in_bucket(__u32 map, __u32 offset) {
  return map >> wl_code_nibble_shift(offset) & 15;
}

/* How many functions begin in all buckets of the block. */
static inline __u32 wl_code_begin_in_block(__u32 map) {
  return ((map & 0x0f0f0f0fu) + (map >> 4 & 0x0f0f0f0fu)) * 0x01010101u >> 24;
}

/* How many functions begin in the buckets before the offset's. */
static inline __u32 wl_code_begin_before(__u32 map, __u32 offset) {
  return wl_code_begin_in_block(map & ((1u << wl_code_nibble_shift(offset)) - 1));
}

/* ---- what readers check -------------------------------------------------------------------------------------------
 */

/* True if the header has a valid range of code, and the blocks for it. */
static inline int wl_code_has_range(const struct wl_code_header* header) {
  __u64 code = header->end - header->begin;
  return header->begin < header->end && code <= 1ull << 32 &&
         header->block_count == wl_code_block_of((__u32)(code - 1)) + 1;
}

/* True if a section lies in the table, at an allowed begin. `alignment` is a power of two. */
static inline int wl_code_has_section(const struct wl_code_header* header, __u64 begin, __u64 size, __u64 alignment) {
  return (begin & (alignment - 1)) == 0 && begin <= header->size && size <= header->size - begin;
}

/* Followed by wl_code_row[row_count]. */
struct wl_code_shape {
  __u32 size;      /* of all that it is made of, which follows */
  __u32 users;     /* functions that have it */
  __u32 hash;      /* the writer's */
  __u16 row_count; /* at least 1 */
  __u8 x_reg;      /* DWARF number of the register that x_kind of its rules is about, or WL_NO_XREG */
  __u8 reserved;
};

struct wl_code_row {
  __u32 at;
  __u32 full; /* wl_code_full's place in the shape; 0: nothing is known from here on */
  struct wl_rule rule;
};

/* Where the row with this `at` begins, in a function of `size` bytes. */
static inline __u32 wl_code_row_begin(__u32 at, __u32 size) {
  return at & WL_CODE_FROM_END ? size - (at & ~WL_CODE_FROM_END) : at;
}

/* True if a shape can begin at this place of the `shape_bytes`. */
static inline int wl_code_has_shape(__u32 shape_bytes, __u32 place) {
  return (place & 3) == 0 && place <= shape_bytes && shape_bytes - place >= sizeof(struct wl_code_shape);
}

/* True if the shape ends within the `shape_bytes`, and its rows are in it. */
static inline int wl_code_is_shape(const struct wl_code_shape* shape, __u32 shape_bytes, __u32 place) {
  return shape->row_count != 0 && shape->size <= shape_bytes - place &&
         shape->size >= sizeof *shape + shape->row_count * sizeof(struct wl_code_row);
}

/* RegisterRule and CfaRule of windlass/frame_row.h, with the same kinds. */
struct wl_code_value {
  __s32 value; /* an offset, or an expression's place in the expressions */
  __u16 size;  /* an expression's; the addend of a CFA that is loaded */
  __u8 reg;
  __u8 kind;
};

struct wl_code_register {
  __u32 reg; /* DWARF number, ascending */
  struct wl_code_value rule;
};

#define WL_CODE_SIGNAL_FRAME 1u
#define WL_CODE_RETURN_SIGNED 2u

/* Followed by wl_code_register[register_count] and expression_bytes of expressions. */
struct wl_code_full {
  struct wl_code_value cfa;
  struct wl_code_value return_address;
  __u16 register_count;
  __u16 flags;
  __u32 expression_bytes;
};

/* True if a row's `full` is a place in its shape, or 0. */
static inline int wl_code_has_full(const struct wl_code_shape* shape, __u32 full) {
  return full == 0 || ((full & 3) == 0 && full <= shape->size && shape->size - full >= sizeof(struct wl_code_full));
}

#endif
