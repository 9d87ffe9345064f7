/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * From a pc to its rule: first the mapping of the process, then the module's page table (windlass_table_layout.h).
 * Plain C, the same in BPF and in user code. Everything read from the arena is bounded by masks. So even a corrupt
 * table is read inside its chunk.
 *
 * The includer provides the environment: struct wl_env, wl_chunk, wl_get_module, wl_read, wl_address_mask_of,
 * WL_INLINE, WL_GLOBAL and WL_OPAQUE.
 *
 * - WL_GLOBAL: a function that the verifier checks once and alone. The verifier knows the types of the arguments, and
 *   nothing of the function's effects.
 * - WL_OPAQUE: keeps the compiler from removing a mask that the verifier needs.
 */
#ifndef WINDLASS_LOOKUP_H
#define WINDLASS_LOOKUP_H

#include "windlass_unwind.h"

#define WL_CHUNK_MASK8 (WL_CHUNK_SIZE - 8) /* byte offset in a chunk, 8-aligned */
#define WL_CHUNK_MASK4 (WL_CHUNK_SIZE - 4)
#define WL_CHUNK_MASK2 (WL_CHUNK_SIZE - 2)

WL_INLINE __u32 wl_offset(__u32 ref) { return (ref << WL_REF_SHIFT) & WL_CHUNK_MASK8; }

/* The searches below count the leading elements that satisfy a monotone predicate, by halving. No branch depends on the
 * data read: a branch in a step makes two paths for the verifier, and 15 steps make 32,768. (No arithmetic shift
 * either: since 6.18 the verifier follows its results 0 and -1 apart.) The first step is the largest power of two
 * within the count, so that a short list takes few steps. It is a variable, so that the verifier sees the same state
 * behind each step. */
WL_INLINE __u64 wl_first_step(__u64 count) { /* the largest power of two that is not above count; 0 for 0 */
  count |= count >> 1;
  count |= count >> 2;
  count |= count >> 4;
  count |= count >> 8;
  count |= count >> 16;
  return count - (count >> 1);
}

/* The first mapping of a sorted set that ends after `address`, or 0. 15 halvings cover a chunk. */
WL_INLINE const struct wl_mapping* wl_first_mapping(const struct wl_env* env, __u32 maps, __u32 count, __u64 address) {
  const unsigned char* chunk = wl_chunk(env, maps);
  if (!chunk || (__s64)address < 0) return 0;
  count &= 0x7fff;
  __u32 base = wl_offset(maps);
  __u64 before = 0; /* mappings that end at or before the address */
  __u64 step = wl_first_step(count);
  for (int i = 0; i < 15; i++) {
    if (step == 0) break;
    __u64 next = before + step;
    __u32 at = base + (__u32)(next - 1) * (__u32)sizeof(struct wl_mapping);
    at &= WL_CHUNK_MASK8;
    WL_OPAQUE(at);
    __u64 no = wl_less(count, next) | wl_less(address, ((const struct wl_mapping*)(chunk + at))->end);
    before += step * (no ^ 1);
    step >>= 1;
  }
  if (before >= count) return 0;
  __u32 at = base + (__u32)before * (__u32)sizeof(struct wl_mapping);
  at &= WL_CHUNK_MASK8;
  WL_OPAQUE(at);
  return (const struct wl_mapping*)(chunk + at);
}

/* The mapping that contains pc, or 0. */
WL_INLINE const struct wl_mapping* wl_find_mapping(const struct wl_env* env, __u32 maps, __u32 count, __u64 pc) {
  const struct wl_mapping* mapping = wl_first_mapping(env, maps, count, pc);
  return mapping && mapping->begin <= pc ? mapping : 0;
}

/* True if [address, address + length) touches a mapping of the set. */
WL_INLINE int wl_overlaps(const struct wl_env* env, __u32 maps, __u32 count, __u64 address, __u64 length) {
  const struct wl_mapping* mapping = wl_first_mapping(env, maps, count, address);
  return mapping && mapping->begin < address + length;
}

/* True if a new mapping at [begin, end), of a file or not, brings other code than the known code there. A mapping
 * without a file is generated code, and may lie over generated code. Over more than three mappings, the answer is not
 * known. */
WL_INLINE int wl_has_other_code(const struct wl_env* env, __u32 maps, __u32 count, __u64 begin, __u64 end, int file) {
  for (int i = 0; i < 4; i++) {
    const struct wl_mapping* known = wl_first_mapping(env, maps, count, begin);
    if (!known || known->begin >= end) return 0;
    if (file || known->kind == WL_MAPPING_FILE) return 1;
    begin = known->end;
  }
  return 1;
}

/* The rule of an escaped row: the last escape at or before the address is in force. Returns its ref, or 0. */
WL_INLINE __u32 wl_find_escape(const unsigned char* chunk, __u32 escapes, __u32 page_offset) {
  escapes &= WL_CHUNK_MASK8;
  WL_OPAQUE(escapes);
  __u32 count = *(const __u32*)(chunk + escapes);
  __u64 before = 0; /* escapes at or before our address */
  __u64 step = wl_first_step(count & 0x1ffff);
  for (int i = 0; i < 17; i++) {
    if (step == 0) break;
    __u64 next = before + step;
    __u32 at = escapes + 8 + (__u32)(next - 1) * (__u32)sizeof(struct wl_escape);
    at &= WL_CHUNK_MASK8;
    WL_OPAQUE(at);
    __u64 no = wl_less(count, next) | wl_less(page_offset, ((const struct wl_escape*)(chunk + at))->page_offset);
    before += step * (no ^ 1);
    step >>= 1;
  }
  __u32 low = (__u32)before;
  if (low == 0) return 0;
  __u32 at = escapes + 8 + (low - 1) * (__u32)sizeof(struct wl_escape);
  at &= WL_CHUNK_MASK8;
  WL_OPAQUE(at);
  return ((const struct wl_escape*)(chunk + at))->rule;
}

#define WL_GAP_FROM_BEGIN 1u /* no row covers the address, nor any before it in the page */
#define WL_GAP_TO_END 2u     /* nor any behind it */

#define WL_PIECE 64u /* Bytes of code, aligned to as many. */

/* How far what was found holds. */
struct wl_covered {
  __u32 gap; /* Without a row: WL_GAP_* */
  __u32
      bare; /* Nor does any other address in the same 64 KiB have one, the next 64 KiB or the last, and none between. */
  __u32 piece; /* The row covers the address's whole piece of code. */
};

/* The arena ref of the rule at `address` (of the module) in the page at `page_ref`. 0 if no row covers the address;
 * then covered->gap says how far. O(log rows of a 256-byte block). */
WL_INLINE __u32 wl_find_in_page(const struct wl_env* env, __u32 page_ref, __u32 palette, __u64 address,
                                struct wl_covered* covered) {
  const unsigned char* chunk = wl_chunk(env, page_ref);
  if (!chunk) return 0;
  __u32 base = wl_offset(page_ref);
  __u32 block = (__u32)(address >> WL_BLOCK_SHIFT) & (WL_BLOCKS - 1);
  __u32 low = 0; /* the row in force when the block begins */
  __u32 at;
  if (block > 0) {
    at = base + (block - 1) * 2;
    at &= WL_CHUNK_MASK2;
    WL_OPAQUE(at);
    low = *(const __u16*)(chunk + at);
  }
  at = base + block * 2;
  at &= WL_CHUNK_MASK2;
  WL_OPAQUE(at);
  __u32 high = *(const __u16*)(chunk + at); /* the last row of the block */
  __u32 rows = base + (__u32)sizeof(struct wl_page_head);
  /* The last row in (low, high] at or before the address, else low. Row 0 of the page is at offset 0, so it holds. */
  __u32 low_byte = (__u32)address & 0xff;
  if (high < low) return 0;
  __u32 count = high - low; /* row low + 1 + i, i < count */
  __u64 before = 0;
  __u64 step = wl_first_step(count & 0x1ff);
  for (int i = 0; i < 9; i++) {
    if (step == 0) break;
    __u64 next = before + step;
    at = rows + (low + (__u32)next) * 2;
    at &= WL_CHUNK_MASK2;
    WL_OPAQUE(at);
    __u64 no = wl_less(count, next) | wl_less(low_byte, *(const __u16*)(chunk + at) >> 8);
    before += step * (no ^ 1);
    step >>= 1;
  }
  low += (__u32)before;
  at = rows + low * 2;
  at &= WL_CHUNK_MASK2;
  WL_OPAQUE(at);
  __u32 row = *(const __u16*)(chunk + at), next = *(const __u16*)(chunk + at + 2);
  __u32 id = row & 0xff;
  __u32 begin = before ? row >> 8 : 0, end = before < count ? next >> 8 : 1u << WL_BLOCK_SHIFT;
  __u32 piece = low_byte & ~(WL_PIECE - 1);
  covered->piece = begin <= piece && piece + WL_PIECE <= end && id != WL_RULE_ESCAPE;
  if (id != 0 && id != WL_RULE_ESCAPE) return palette + id * (__u32)(sizeof(struct wl_rule) >> WL_REF_SHIFT);

  at = base + (WL_BLOCKS - 1) * 2;
  at &= WL_CHUNK_MASK2;
  WL_OPAQUE(at);
  __u32 row_count = (__u32) * (const __u16*)(chunk + at) + 1;
  if (id == 0) { /* palette index 0: no row */
    covered->gap = (low == 0 ? WL_GAP_FROM_BEGIN : 0) | (low + 1 == row_count ? WL_GAP_TO_END : 0);
    return 0;
  }
  return wl_find_escape(chunk, (rows + row_count * 2 + 7) & ~7u, (__u32)address & 0xffff);
}

/* A module's page; 0 if it has no row. Pages beyond those that the program looks into count as described. */
WL_INLINE __u32 wl_page_ref(const struct wl_env* env, const struct wl_module* module, __u64 page) {
  if (page >= module->page_count || page >= WL_MAX_PAGES) return ~0u;
  const unsigned char* chunk = wl_chunk(env, module->directory);
  if (!chunk) return ~0u;
  __u32 at = wl_offset(module->directory) + (__u32)page * 4;
  at &= WL_CHUNK_MASK4;
  WL_OPAQUE(at);
  return *(const __u32*)(chunk + at);
}

/* The arena ref of the rule at `address` (of the module); 0 if no row covers the address. */
WL_INLINE __u32 wl_find_rule_ref(const struct wl_env* env, const struct wl_module* module, __u64 address,
                                 struct wl_covered* covered) {
  __u64 page = (address >> WL_PAGE_SHIFT) - module->first_page;
  covered->gap = covered->bare = covered->piece = 0;
  __u32 page_ref = wl_page_ref(env, module, page);
  if (page_ref == ~0u) return 0;
  covered->bare = page_ref == 0;
  if (page_ref == 0) return 0;
  __u32 ref = wl_find_in_page(env, page_ref, module->palette, address, covered);
  if (covered->gap & WL_GAP_TO_END) covered->bare = wl_page_ref(env, module, page + 1) == 0;
  if ((covered->gap & WL_GAP_FROM_BEGIN) && !covered->bare) covered->bare = wl_page_ref(env, module, page - 1) == 0;
  return ref;
}

/* The rule for the code at `pc`, a lookup address. Returns WL_CONTINUE with the rule in u->ref and u->x_reg. Without a
 * rule in a table here, u->ref is 0; the rule may then be in a code manager's table, at u->managed. Else returns the
 * wl_end.
 *
 * Generated code is code in a mapping of that kind. Code made ahead of time counts too, if its file has no row in the
 * 64 KiB around (V8's builtins): no programmer writes that much assembly without CFI. */
WL_GLOBAL int wl_find_rule(struct wl_unwind* u, __u64 pc) {
  if (!u) return WL_END_INTERNAL;
  u->ref = 0;
  u->x_reg = WL_NO_XREG;
  u->generated = WL_GENERATED_NOW;
  u->managed = 0;
  u->learns = 0;
  u->piece = 0;
  const struct wl_mapping* mapping = wl_find_mapping(&u->env, u->maps, u->map_count, pc);
  if (!mapping) return WL_END_NO_MAPPING;
  if (mapping->kind == WL_MAPPING_MANAGED) u->managed = mapping->table;
  if (mapping->kind == WL_MAPPING_LEARNED) u->learns = 1;
  if (mapping->kind == WL_MAPPING_SWITCHED) {
    u->other_stack = mapping->way;
    return WL_END_NO_ROW;
  }
  if (mapping->kind == WL_MAPPING_HELD) {
    u->held = mapping->held;
    return WL_END_NO_ROW;
  }
  if (mapping->kind != WL_MAPPING_FILE) return WL_CONTINUE;
  const struct wl_module* module = wl_get_module(&u->env, mapping->module);
  if (!module || module->state == WL_MODULE_PENDING) return WL_END_PENDING;
  u->generated = 0;
  if (module->state != WL_MODULE_READY) return WL_CONTINUE;
  u->x_reg = module->x_reg;
  struct wl_covered covered;
  u->ref = wl_find_rule_ref(&u->env, module, pc - mapping->bias, &covered);
  u->generated = covered.bare ? WL_GENERATED_AHEAD : 0;
  u->piece = covered.piece && (mapping->bias & (WL_PIECE - 1)) == 0 && pc - (pc & (WL_PIECE - 1)) >= mapping->begin &&
             (pc | (WL_PIECE - 1)) < mapping->end;
  return WL_CONTINUE;
}

#endif
