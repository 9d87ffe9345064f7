/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * From a pc to its rule in the table of a code manager, as windlass_code_layout.h describes. The table is read in the
 * memory of the process while the process changes it: without a lock, with a bound for every loop, and never outside of
 * the table. src/runtimes/manager/read.h is the same in C++ for a mapped table, with the same results. Plain C, the
 * same in BPF and in user space; windlass_lookup.h describes the environment.
 *
 * The state of a search is in u->room.search, and each round of a search is a global function. So a verifier takes the
 * data read for unknown, and checks a round once.
 */
#ifndef WINDLASS_MANAGED_H
#define WINDLASS_MANAGED_H

#include "windlass_code_layout.h"
#include "windlass_unwind.h"

enum wl_looked {
  WL_LOOKED_FOUND = 0,
  WL_LOOKED_NONE = 1,       /* no function, or no row */
  WL_LOOKED_UNREADABLE = 2, /* not there at this moment, or no table */
  WL_LOOKED_BAD_PLACE = 3,
  WL_LOOKED_CHANGING = 4,
};

/* The order of reads. `recycled` must be read before all else, and after a look-up once more, behind all else. x86-64
 * keeps the order of loads. AArch64 keeps the order of a load and the loads whose addresses depend on its result (Arm
 * ARM, B2.3.3, "Dependency-ordered-before"). So this function's result, which is 0, is added to addresses. */
WL_INLINE __u64 wl_behind(__u64 loaded) {
#ifdef WL_TARGET_A64
  __u64 same = loaded;
  WL_OPAQUE(same);
  return same ^ loaded;
#else
  (void)loaded;
  return 0;
#endif
}

WL_INLINE void wl_saw(struct wl_code_search* search, const void* read, __u32 size) {
#ifdef WL_TARGET_A64
  const __u32* words = (const __u32*)read;
  __u64 seen = search->seen;
  for (__u32 i = 0; i < size / 4; i++) seen ^= words[i];
  search->seen = seen;
#else
  (void)search, (void)read, (void)size;
#endif
}

/* All or nothing. 0 if it could be read. */
WL_INLINE int wl_read_table(struct wl_unwind* u, void* to, __u32 size, __u64 place) {
  const struct wl_code_table* table = &u->table;
  if (place > table->header.size || size > table->header.size - place) return 1;
  return wl_read(&u->env, to, size, table->address + place) != 0;
}

/* Looks at the table at u->managed. wl_looked. */
WL_GLOBAL int wl_open_table(struct wl_unwind* u) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_header* header = &u->table.header;
  u->table.address = 0;
  if (wl_read(&u->env, header, sizeof *header, u->managed)) return WL_LOOKED_UNREADABLE;
  if (header->magic != WL_CODE_MAGIC || header->version != WL_CODE_VERSION || header->machine != WL_MACHINE)
    return WL_LOOKED_BAD_PLACE;
  if (!wl_code_has_range(header) ||
      !wl_code_has_section(header, header->blocks, (__u64)header->block_count * sizeof(struct wl_code_block), 8) ||
      !wl_code_has_section(header, header->records, (__u64)header->record_count * sizeof(struct wl_code_record), 8) ||
      !wl_code_has_section(header, header->shapes, header->shape_bytes, 4))
    return WL_LOOKED_BAD_PLACE;
  u->table.address = u->managed;
  return WL_LOOKED_FOUND;
}

/* Reads `recycled`, behind all that was read before. */
WL_GLOBAL int wl_read_recycled(struct wl_unwind* u) {
  if (!u) return WL_LOOKED_UNREADABLE;
  __u64 place = __builtin_offsetof(struct wl_code_header, recycled) + wl_behind(u->room.search.seen);
  return wl_read_table(u, &u->table.header.recycled, 8, place) ? WL_LOOKED_UNREADABLE : WL_LOOKED_FOUND;
}

/* Reads a block into the search, behind `recycled`. Both halves must be of one moment. The kernel may copy 8 bytes one
 * by one, but a block that reads the same twice has not changed in between. */
WL_GLOBAL int wl_read_block(struct wl_unwind* u, __u32 number) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  __u64 place = u->table.header.blocks + (__u64)number * sizeof(struct wl_code_block);
  place += wl_behind(u->table.header.recycled);
  if (wl_read_table(u, &search->block, 8, place) || wl_read_table(u, &search->again, 8, place))
    return WL_LOOKED_UNREADABLE;
  wl_saw(search, &search->block, 8);
  wl_saw(search, &search->again, 8);
  return search->block == search->again ? WL_LOOKED_FOUND : WL_LOOKED_CHANGING;
}

/* A record into the search, unless it is there. */
WL_GLOBAL int wl_read_record(struct wl_unwind* u, __u32 number) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  if (number >= u->table.header.record_count) return WL_LOOKED_BAD_PLACE;
  if (search->number == number) return WL_LOOKED_FOUND;
  search->number = number;
  if (wl_read_table(u, &search->record, sizeof search->record,
                    u->table.header.records + (__u64)number * sizeof search->record))
    return WL_LOOKED_UNREADABLE;
  wl_saw(search, &search->record, sizeof search->record);
  return WL_LOOKED_FOUND;
}

WL_INLINE __u32 wl_map_of(__u64 block) { return (__u32)block; }
WL_INLINE __u32 wl_first_of(__u64 block) { return (__u32)(block >> 32); }

/* The records of a run, whose block is in the search, into `first`, `low` and `high`. */
WL_INLINE int wl_find_run(struct wl_unwind* u) {
  struct wl_code_search* search = &u->room.search;
  search->first = wl_first_of(search->block);
  search->low = 0;
  search->high = wl_code_begin_in_block(wl_map_of(search->block));
  if (wl_map_of(search->block) != WL_CODE_CROWDED) return WL_LOOKED_FOUND;
  int looked = wl_read_record(u, search->first);
  search->first++;
  search->high = search->record.size < WL_CODE_MAX_RUN ? search->record.size : WL_CODE_MAX_RUN;
  return looked;
}

/* One halving of the records [low, high) of a run, until `low` is how many begin at or before the offset. */
WL_GLOBAL int wl_halve_run(struct wl_unwind* u) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  __u32 middle = search->low + (search->high - search->low) / 2;
  int looked = wl_read_record(u, search->first + middle);
  if (looked) return looked;
  if (search->record.begin <= search->offset)
    search->low = middle + 1;
  else
    search->high = middle;
  return WL_LOOKED_FOUND;
}

/* Puts the number of the record whose function reaches into a block into search->number; 0: none. The block is in the
 * search.
 */
WL_GLOBAL int wl_find_reaching(struct wl_unwind* u, __u32 number) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  search->first = wl_first_of(search->block);
  search->high = 0;
  if (wl_map_of(search->block) == 0) return WL_LOOKED_FOUND;
  int looked = wl_read_block(u, number - 1);
  if (looked) return looked;
  return wl_find_run(u);
}

/* The record of the function that contains search->offset into the search. */
WL_GLOBAL int wl_find_record(struct wl_unwind* u) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  __u32 block = wl_code_block_of(search->offset);
  search->number = ~0u;
  int looked = wl_read_block(u, block);
  if (looked) return looked;
  looked = wl_find_run(u);
  if (looked) return looked;
  __u32 map = wl_map_of(search->block);
  if (map != WL_CODE_CROWDED) {
    search->low = wl_code_begin_before(map, search->offset);
    search->high = search->low + wl_code_begin_in_bucket(map, search->offset);
  }
  for (__u32 i = 0; i < WL_CODE_MAX_HALVINGS; i++) {
    if (search->low >= search->high) break;
    looked = wl_halve_run(u);
    if (looked) return looked;
  }
  __u32 number = search->first + search->low - 1;
  if (search->low == 0) {
    looked = wl_find_reaching(u, block);
    if (looked) return looked;
    number = search->first + search->high - (search->high != 0);
    if (number == 0) return WL_LOOKED_NONE;
  }
  looked = wl_read_record(u, number);
  if (looked) return looked;
  const struct wl_code_record* record = &search->record;
  return record->begin <= search->offset && search->offset - record->begin < record->size ? WL_LOOKED_FOUND
                                                                                          : WL_LOOKED_NONE;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------
 */

WL_INLINE __u64 wl_place_of_row(const struct wl_unwind* u, __u32 row) {
  return u->table.header.shapes + u->room.search.record.shape + sizeof(struct wl_code_shape) +
         (__u64)row * sizeof(struct wl_code_row);
}

WL_INLINE int wl_is_behind_row(const struct wl_code_search* search, __u32 at) {
  return wl_code_row_begin(at, search->record.size) <= search->offset - search->record.begin;
}

/* One halving of the rows [low, high). The first of them is at or before the offset, as far as that is possible. */
WL_GLOBAL int wl_halve_rows(struct wl_unwind* u) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  __u32 middle = search->low + (search->high - search->low) / 2;
  if (wl_read_table(u, &search->at, 4, wl_place_of_row(u, middle))) return WL_LOOKED_UNREADABLE;
  wl_saw(search, &search->at, 4);
  if (wl_is_behind_row(search, search->at))
    search->low = middle;
  else
    search->high = middle;
  return WL_LOOKED_FOUND;
}

/* The row in force, of the few [low, high), into u->rule. */
WL_GLOBAL int wl_take_row(struct wl_unwind* u) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  __u32 count = search->high - search->low;
  WL_OPAQUE(count);
  if (count == 0 || count > WL_CODE_ROWS_AT_ONCE) return WL_LOOKED_BAD_PLACE;
  if (!search->has_rows || search->low != 0) {
    if (wl_read_table(u, search->piece.rows, count * (__u32)sizeof search->piece.rows[0],
                      wl_place_of_row(u, search->low)))
      return WL_LOOKED_UNREADABLE;
    wl_saw(search, search->piece.rows, sizeof search->piece.rows);
  }
  __u32 low = 0, high = count;
  for (__u32 i = 1; i < WL_CODE_ROWS_AT_ONCE; i *= 2) {
    if (high - low <= 1) break;
    __u32 middle = low + (high - low) / 2;
    middle &= WL_CODE_ROWS_AT_ONCE - 1;
    WL_OPAQUE(middle);
    if (wl_is_behind_row(search, search->piece.rows[middle & (WL_CODE_ROWS_AT_ONCE - 1)].at))
      low = middle;
    else
      high = middle;
  }
  low &= WL_CODE_ROWS_AT_ONCE - 1;
  WL_OPAQUE(low);
  const struct wl_code_row* row = &search->piece.rows[low & (WL_CODE_ROWS_AT_ONCE - 1)];
  if (!wl_code_has_full(&search->piece.shape, row->full)) return WL_LOOKED_BAD_PLACE;
  /* What was halved away begins behind the offset; rows that do not ascend show at the others. */
  __u32 inside = search->offset - search->record.begin;
  if (wl_code_row_begin(row->at, search->record.size) > inside) return WL_LOOKED_BAD_PLACE;
  if (low + 1 < count && wl_is_behind_row(search, search->piece.rows[(low + 1) & (WL_CODE_ROWS_AT_ONCE - 1)].at))
    return WL_LOOKED_BAD_PLACE;
  if (row->full == 0) return WL_LOOKED_NONE;
  u->rule = row->rule;
  u->x_reg = search->piece.shape.x_reg;
  return WL_LOOKED_FOUND;
}

/* A shape into the search's piece; most have no more rows than there is room for behind it. */
WL_GLOBAL int wl_read_shape(struct wl_unwind* u, __u32 place) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  __u32 bytes = u->table.header.shape_bytes;
  __u64 at = u->table.header.shapes + place;
  if (!wl_code_has_shape(bytes, place)) return WL_LOOKED_BAD_PLACE;
  search->has_rows =
      bytes - place >= sizeof search->piece && wl_read_table(u, &search->piece, sizeof search->piece, at) == 0;
  if (!search->has_rows && wl_read_table(u, &search->piece.shape, sizeof search->piece.shape, at))
    return WL_LOOKED_UNREADABLE;
  wl_saw(search, &search->piece, sizeof search->piece);
  return wl_code_is_shape(&search->piece.shape, bytes, place) ? WL_LOOKED_FOUND : WL_LOOKED_BAD_PLACE;
}

/* The row in force at search->offset, of the record that is there. */
WL_GLOBAL int wl_find_row(struct wl_unwind* u) {
  if (!u) return WL_LOOKED_UNREADABLE;
  struct wl_code_search* search = &u->room.search;
  if (search->record.shape == 0) return WL_LOOKED_NONE;
  int looked = wl_read_shape(u, search->record.shape);
  if (looked) return looked;
  search->low = 0;
  search->high = search->piece.shape.row_count;
  for (__u32 i = 0; i < 16; i++) { /* as many as WL_CODE_MAX_ROWS needs */
    if (search->high - search->low <= WL_CODE_ROWS_AT_ONCE) break;
    looked = wl_halve_rows(u);
    if (looked) return looked;
  }
  return wl_take_row(u);
}

/* ---- both ---------------------------------------------------------------------------------------------------------
 */

/* Puts the rule at `pc` into u->rule and u->x_reg. `pc` is a lookup address in code of the manager whose table is at
 * u->managed. Returns a wl_looked. In every case u->table.header.recycled is that of this moment, if there is a table.
 * O(log rows). */
WL_GLOBAL int wl_find_managed_rule(struct wl_unwind* u, __u64 pc) {
  if (!u) return WL_LOOKED_UNREADABLE;
  const struct wl_code_header* header = &u->table.header;
  if (u->table.address != u->managed) {
    int opened = wl_open_table(u);
    if (opened) return opened;
  }
  if (pc < header->begin || pc >= header->end) return WL_LOOKED_NONE;
  u->room.search.seen = 0;
  u->room.search.offset = (__u32)(pc - header->begin);
  for (__u32 i = 0; i < WL_CODE_RETRIES; i++) {
    __u64 before = header->recycled;
    int looked = wl_find_record(u);
    if (looked == WL_LOOKED_FOUND) looked = wl_find_row(u);
    if (wl_read_recycled(u)) return WL_LOOKED_UNREADABLE;
    if (looked != WL_LOOKED_CHANGING && before == header->recycled) return looked;
  }
  return WL_LOOKED_CHANGING;
}

#endif
