/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * From an address in a heap of .NET's code to the rule there: by the heap's nibble map, the header of the method and
 * its Windows x64 unwind codes, which are read in the process. src/runtimes/coreclr does the same in C++, for more
 * kinds of code. What is not of the common kind is left to the agent. Plain C, the same in BPF and in user space;
 * windlass_lookup.h describes the environment.
 *
 * dotnet/runtime, docs/design/datacontracts/ExecutionManager.md. Microsoft, "x64 exception handling".
 */
#ifndef WINDLASS_CORECLR_H
#define WINDLASS_CORECLR_H

#include "windlass_unwind.h"

#define WL_NIBBLE_SHIFT 5 /* Bytes of code that have a nibble. */
#define WL_UNIT_NIBBLES 8u
#define WL_UNIT_POINTER 8u /* The lowest nibble of a unit that is a pointer is above this. */
#define WL_MOST_METHOD_FRAME (1u << 30)
#define WL_X64_NUMBER_OF_RSP 4u /* In unwind codes. */
#define WL_X64_NUMBER_OF_RBP 5u

/* Is it a unit that one method covers? Then it says where the method begins. */
WL_INLINE int wl_take_pointer(struct wl_method_search* search) {
  __u32 unit = search->unit;
  if ((unit & 15) <= WL_UNIT_POINTER) return 0;
  search->start = (unit & ~15u) + ((unit & 15) - (WL_UNIT_POINTER + 1)) * 4;
  return 1;
}

/* The last method that begins at or before `offset` in the nibbles of search->unit, of which the lowest is `bucket`'s.
 * 0: none does. */
WL_GLOBAL int wl_last_start(struct wl_unwind* u, __u64 offset, __u64 bucket) {
  if (!u) return 0;
  struct wl_method_search* search = &u->room.method;
  __u32 unit = search->unit;
  for (__u32 i = 0; i < WL_UNIT_NIBBLES; i++) {
    __u64 start = ((bucket - i) << WL_NIBBLE_SHIFT) + (__u64)((unit & 15) - 1) * 4;
    if ((unit & 15) != 0 && start <= offset) {
      search->start = start;
      return 1;
    }
    unit >>= 4;
  }
  return 0;
}

/* Where the method begins that covers the address, if any does, into search->start. 0: none. */
WL_GLOBAL int wl_find_method(struct wl_unwind* u, __u64 pc) {
  if (!u) return 0;
  struct wl_method_search* search = &u->room.method;
  const struct wl_code_heap* heap = &search->heap;
  if (pc < heap->begin || pc >= heap->end || pc < heap->map_base || pc - heap->map_base >= ~0u) return 0;
  __u64 offset = pc - heap->map_base, bucket = offset >> WL_NIBBLE_SHIFT;
  __u64 at = heap->map + bucket / WL_UNIT_NIBBLES * 4;
  if (wl_read(&u->env, &search->unit, 4, at)) return 0;
  if (wl_take_pointer(search)) return 1;
  search->unit >>= (WL_UNIT_NIBBLES - 1 - (bucket & (WL_UNIT_NIBBLES - 1))) * 4;
  if (wl_last_start(u, offset, bucket)) return 1;
  if (bucket < WL_UNIT_NIBBLES || wl_read(&u->env, &search->unit, 4, at - 4)) return 0;
  if (wl_take_pointer(search)) return 1;
  return wl_last_start(u, offset, bucket / WL_UNIT_NIBBLES * WL_UNIT_NIBBLES - 1);
}

/* The function of the method that begins at search->start: into search->offset and search->info. 0: the agent knows
 * more. */
WL_GLOBAL int wl_find_function(struct wl_unwind* u, __u64 pc) {
  if (!u) return 0;
  struct wl_method_search* search = &u->room.method;
  const struct wl_code_heap* heap = &search->heap;
  __u64 start = heap->map_base + search->start;
  if (wl_read(&u->env, &search->header, 8, start - 8) || search->header <= heap->last_stub) return 0;
  if (wl_read(&u->env, &search->count, 4, search->header + heap->count)) return 0;
  if (wl_read(&u->env, search->functions, sizeof search->functions, search->header + heap->functions)) return 0;
  if (heap->base + search->functions[0].begin != start || pc - heap->base >= ~0u) return 0;
  __u32 address = (__u32)(pc - heap->base);
  for (__u32 i = 0; i < WL_METHOD_FUNCTIONS; i++) {
    const struct wl_method_function* function = &search->functions[i];
    if (i >= search->count) break;
    if (address < function->begin || address >= function->end) continue;
    search->offset = address - function->begin;
    search->info = function->info;
    return 1;
  }
  return 0;
}

/* Undoes the next code, if it was done. 0: the agent knows more. */
WL_GLOBAL int wl_undo_code(struct wl_unwind* u) {
  if (!u) return 0;
  struct wl_method_search* search = &u->room.method;
  const __u16* codes = search->codes;
  __u32 at = search->at, size = search->size;
  __u32 code = codes[at & (WL_METHOD_CODES - 1)], info = code >> 12;
  __u32 first = codes[(at + 1) & (WL_METHOD_CODES - 1)], second = codes[(at + 2) & (WL_METHOD_CODES - 1)];
  __u32 done = search->offset >= (code & 0xff), saved_at = ~0u, slots = 1, grown = 0;
  switch (code >> 8 & 15) {
    case 0: /* PUSH_NONVOL */
      saved_at = size;
      grown = 8;
      break;
    case 1: /* ALLOC_LARGE */
      slots = info ? 3 : 2;
      grown = info ? first | second << 16 : first * 8;
      break;
    case 2: /* ALLOC_SMALL */ grown = info * 8 + 8; break;
    case 4: /* SAVE_NONVOL */
      slots = 2;
      saved_at = first * 8;
      break;
    case 5: /* SAVE_NONVOL_FAR */
      slots = 3;
      saved_at = first | second << 16;
      break;
    case 8: /* SAVE_XMM128 */ slots = 2; break;
    case 9: /* SAVE_XMM128_FAR */ slots = 3; break;
    default: return 0;
  }
  search->at = at + slots;
  if (saved_at != ~0u && info == WL_X64_NUMBER_OF_RSP) return 0;
  if (!done) return 1;
  if (info == WL_X64_NUMBER_OF_RBP && saved_at != ~0u) search->saved_fp = saved_at;
  if (grown > WL_MOST_METHOD_FRAME || size + grown > WL_MOST_METHOD_FRAME) return 0;
  search->size = size + grown;
  return 1;
}

/* Is the interrupted instruction certainly in no epilogue, of which the codes say nothing? As may_begin_epilogue() of
 * src/formats/winx64/epilogue.h. */
WL_GLOBAL int wl_is_before_epilogue(struct wl_unwind* u, __u64 pc) {
  if (!u) return 0;
  const __u8* code = u->room.method.head;
  if (wl_read(&u->env, u->room.method.head, 2, pc)) return 0;
  __u32 first = code[0], second = code[1];
  if ((first & 0xf0) == 0x40) { /* REX */
    if ((second & 0xf8) == 0x58) return 0;
    if (first == 0x48 && (second == 0x83 || second == 0x81)) return 0;
    return !((first & 8) && (second == 0xff || (first <= 0x49 && second == 0x8d)));
  }
  if ((first & 0xf8) == 0x58 || (first & 0xfe) == 0xc2 || (first & 0xfd) == 0xe9 || first == 0xf2) return 0;
  return !((first == 0xc5 && second == 0xf8) || ((first == 0x90 || first == 0xf3) && second == 0xc3) ||
           (first == 0xff && second == 0x25));
}

/* The frame's size and where it has the caller's frame pointer, by the unwind information. 0: the agent knows more. */
WL_GLOBAL int wl_undo_codes(struct wl_unwind* u) {
  if (!u) return 0;
  struct wl_method_search* search = &u->room.method;
  __u64 info = search->heap.base + search->info;
  if (wl_read(&u->env, search->head, 4, info)) return 0;
  __u32 count = search->head[2];
  /* Version 1, not chained, and no frame register. */
  if ((search->head[0] & 0x27) != 1 || (search->head[3] & 15) || count > WL_METHOD_CODES) return 0;
  __u32 bytes = count * 2;
  WL_OPAQUE(bytes);
  if (bytes > sizeof search->codes || (bytes && wl_read(&u->env, search->codes, bytes, info + 4))) return 0;
  search->at = search->size = 0;
  search->saved_fp = ~0u;
  for (__u32 i = 0; i < WL_METHOD_CODES; i++) {
    if (search->at >= count) break;
    if (!wl_undo_code(u)) return 0;
  }
  return search->at == count;
}

/* The rule at `pc`, a lookup address in the heap of which u->learned has the wl_code_heap, into u->rule. Returns 0, or
 * 1 if the agent knows more. Bounded by the constants above. */
WL_GLOBAL int wl_find_method_rule(struct wl_unwind* u, __u64 pc) {
  if (!u) return 1;
  struct wl_method_search* search = &u->room.method;
  __builtin_memcpy(&search->heap, &u->learned, sizeof search->heap);
  if (!wl_find_method(u, pc) || !wl_find_function(u, pc)) return 1;
  if (u->cursor.exact && !wl_is_before_epilogue(u, pc)) return 1;
  if (!wl_undo_codes(u)) return 1;
  __u32 cfa = search->size + 8, below = cfa - search->saved_fp;
  struct wl_rule* rule = &u->rule;
  __builtin_memset(rule, 0, sizeof *rule);
  rule->cfa_kind = WL_CFA_REG;
  rule->cfa_reg = WL_SP;
  rule->cfa_offset = (__s32)cfa;
  rule->ra_kind = WL_REG_CFA;
  rule->ra_offset = -8;
  rule->proof = WL_PROOF_NO_END;
  if (search->saved_fp == ~0u) return 0;
  if (search->saved_fp >= cfa || below > 0x7fff) return 1;
  rule->fp_kind = WL_REG_CFA;
  rule->fp_offset = (__s16) - (__s32)below;
  return 0;
}

#endif
