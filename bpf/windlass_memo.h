/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The per-CPU memo (space, address) -> rule, 16 bytes an entry, direct-mapped. The key is exact (all bits of a user
 * address, 48 on x86-64 and 52 on AArch64, all 32 of the space, and a space is never used twice), so an entry is never
 * stale and never a near miss. If one row covers a whole piece of code (WL_PIECE), the entry is that of the piece.
 *
 *   tag    address bits 0-47 : 48, space bits 0-15 : 16
 *   value  kind : 2, base : 1, fp_saved : 1, x_reg : 5, loses_x : 1, then (little end first) by kind
 *            WL_MEMO_PLAIN  cfa_offset / 8, signed : 19 (AArch64 17), fp_offset / 8, signed : 19 (17)
 *                           CFA = (base ? rbp : rsp) + cfa_offset; ra = [CFA - 8]; rbp = fp_saved ? [CFA + fp_offset]
 *                           : same, and fp_offset is -8; x same, or with loses_x not known in the caller
 *                           AArch64: a frame record at CFA + fp_offset, x29 and x30; the return address stripped
 *            WL_MEMO_REF    arena ref of the rule : 32
 *            WL_MEMO_END    the frame has no caller
 *          on top: space bits 16-31 : 16; AArch64 also address bits 48-51 : 4
 */
#ifndef WINDLASS_MEMO_H
#define WINDLASS_MEMO_H

#include "windlass_lookup.h"
#include "windlass_memo_entry.h"
#include "windlass_step.h"

#define WL_MEMO_PLAIN 1u
#define WL_MEMO_REF 2u
#define WL_MEMO_KIND 3u
#define WL_MEMO_END 0u
#define WL_MEMO_BASE_FP 4u
#define WL_MEMO_FP_SAVED 8u
#define WL_MEMO_XREG_SHIFT 4
#define WL_MEMO_NO_XREG 31u
#define WL_MEMO_LOSES_X (1u << 9)
#define WL_MEMO_CFA_SHIFT 10
#ifdef WL_TARGET_A64
#define WL_MEMO_CFA_BITS 17
#define WL_MEMO_FP_BITS 17
#else
#define WL_MEMO_CFA_BITS 19
#define WL_MEMO_FP_BITS 19
#endif
#define WL_MEMO_FP_SHIFT (WL_MEMO_CFA_SHIFT + WL_MEMO_CFA_BITS)
#define WL_MEMO_KEY_SHIFT (WL_MEMO_FP_SHIFT + WL_MEMO_FP_BITS) /* the key's part in the value */

WL_INLINE __u64 wl_memo_tag(__u32 space, __u64 address) { return (address & 0xffffffffffffull) | ((__u64)space << 48); }

WL_INLINE __u64 wl_memo_key(__u32 space, __u64 address) {
  (void)address;
#ifdef WL_TARGET_A64
  return (__u64)(space >> 16) << 4 | (address >> 48 & 15);
#else
  return space >> 16;
#endif
}

WL_INLINE __u32 wl_memo_slot(__u32 space, __u64 address) {
  return (__u32)(((address ^ ((__u64)space << 20)) * 0x9e3779b97f4a7c15ull) >> 51) & (WL_MEMO_ENTRIES - 1);
}

/* Entries for a whole piece of code have the piece's address, and a space that no process has. */
#define WL_MEMO_OF_PIECE 0x80000000u

struct wl_memo_place {
  __u32 space;
  __u64 address;
};

/* `piece`: 1 or 0. */
WL_INLINE struct wl_memo_place wl_place_in_memo(__u32 space, __u64 pc, __u32 piece) {
  __u64 within = (__u64)piece * (WL_PIECE - 1);
  struct wl_memo_place place = {space | piece * WL_MEMO_OF_PIECE, pc & ~within};
  return place;
}

WL_INLINE int wl_memo_fits(__s32 offset, __u32 bits) {
  __s32 scaled = offset >> 3;
  return (offset & 7) == 0 && scaled >= -(1 << (bits - 1)) && scaled < (1 << (bits - 1));
}

/* Are return address and frame pointer where a plain rule has them? A plain rule has the proof of most rows. */
WL_INLINE int wl_memo_saves_plainly(const struct wl_rule* rule) {
#ifdef WL_TARGET_A64
  return rule->proof == WL_PROOF_CALLED && rule->ra_kind == WL_REG_CFA && rule->fp_kind == WL_REG_CFA &&
         rule->fp_offset < -8 && rule->ra_offset == rule->fp_offset + 8 && (rule->flags & ~WL_RULE_SIGNED) == 0;
#else
  return rule->proof == WL_PROOF_CALLED && rule->ra_kind == WL_REG_CFA && rule->ra_offset == -8 && rule->flags == 0 &&
         (rule->fp_kind == WL_REG_SAME || (rule->fp_kind == WL_REG_CFA && rule->fp_offset < -8));
#endif
}

/* What to remember of a rule at `ref`.
 *
 * Hardly a frame is reached by the extra register, and many functions save it. Without `keeps_x` a rule that loads it
 * may be a plain one, behind which the register is not known. A walk that comes to a frame that needs the register then
 * ends there, and the agent unwinds the sample. The thread's next walks keep the register (windlass_trail.h). */
WL_INLINE __u64 wl_memo_value(__u32 space, __u64 address, const struct wl_rule* rule, __u32 ref, __u32 x_reg,
                              __u32 keeps_x) {
  __u64 value = wl_memo_key(space, address) << WL_MEMO_KEY_SHIFT;
  __u64 x = (__u64)(x_reg < WL_EXTRA_REGISTERS ? x_reg : WL_MEMO_NO_XREG) << WL_MEMO_XREG_SHIFT;
  if (rule->cfa_kind != WL_CFA_NONE && rule->cfa_kind != WL_CFA_UNSUPPORTED && rule->ra_kind == WL_REG_UNDEFINED)
    return value | x | WL_MEMO_END;
  int loads_x = rule->x_kind != WL_REG_SAME && x_reg < WL_EXTRA_REGISTERS;
  int plain = rule->cfa_kind == WL_CFA_REG && (rule->cfa_reg == WL_SP || rule->cfa_reg == WL_FP) &&
              wl_memo_saves_plainly(rule) && !(loads_x && keeps_x) &&
              wl_memo_fits(rule->cfa_offset, WL_MEMO_CFA_BITS) &&
              (rule->fp_kind == WL_REG_SAME || wl_memo_fits(rule->fp_offset, WL_MEMO_FP_BITS));
  if (!plain) return value | x | WL_MEMO_REF | ((__u64)ref << WL_MEMO_CFA_SHIFT);
  value |= WL_MEMO_PLAIN;
  value |= loads_x ? WL_MEMO_LOSES_X | (__u64)WL_MEMO_NO_XREG << WL_MEMO_XREG_SHIFT : x;
  if (rule->cfa_reg == WL_FP) value |= WL_MEMO_BASE_FP;
  value |= ((__u64)(__u32)(rule->cfa_offset >> 3) & ((1u << WL_MEMO_CFA_BITS) - 1)) << WL_MEMO_CFA_SHIFT;
  if (rule->fp_kind == WL_REG_CFA) value |= WL_MEMO_FP_SAVED;
  __s32 lower = rule->fp_kind == WL_REG_CFA ? rule->fp_offset : -8;
  return value | ((__u64)(__u32)(lower >> 3) & ((1u << WL_MEMO_FP_BITS) - 1)) << WL_MEMO_FP_SHIFT;
}

WL_INLINE int wl_memo_hit(const struct wl_memo_entry* entry, __u32 space, __u64 address) {
  return ((entry->tag ^ wl_memo_tag(space, address)) |
          (entry->value >> WL_MEMO_KEY_SHIFT ^ wl_memo_key(space, address))) == 0;
}

/* The entry of the pc or of its piece, whichever is known (*hit). Sampled code may be anywhere in a function, so its
 * piece is asked first. Return addresses come again and again, so these are asked first. */
WL_INLINE const struct wl_memo_entry* wl_memo_find(const struct wl_memo* memo, __u32 space, __u64 pc, __u32 exact,
                                                   int* hit) {
  struct wl_memo_place place = wl_place_in_memo(space, pc, exact);
  const struct wl_memo_entry* entry = &memo->entries[wl_memo_slot(place.space, place.address)];
  *hit = wl_memo_hit(entry, place.space, place.address);
  if (*hit) return entry;
  place = wl_place_in_memo(space, pc, exact ^ 1);
  entry = &memo->entries[wl_memo_slot(place.space, place.address)];
  *hit = wl_memo_hit(entry, place.space, place.address);
  return entry;
}

WL_INLINE __s64 wl_memo_cfa_offset(__u64 value) {
  return (__s64)(value << (64 - WL_MEMO_CFA_SHIFT - WL_MEMO_CFA_BITS)) >> (64 - WL_MEMO_CFA_BITS) << 3;
}

WL_INLINE __s64 wl_memo_fp_offset(__u64 value) {
  return (__s64)(value << (64 - WL_MEMO_FP_SHIFT - WL_MEMO_FP_BITS)) >> (64 - WL_MEMO_FP_BITS) << 3;
}

/* Where the rule loads fp, counted from the CFA; 0: fp stays. */
WL_INLINE __s32 wl_memo_saved(__u64 value) { return value & WL_MEMO_FP_SAVED ? (__s32)wl_memo_fp_offset(value) : 0; }

WL_INLINE __u32 wl_memo_ref(__u64 value) { return (__u32)(value >> WL_MEMO_CFA_SHIFT); }

WL_INLINE __u32 wl_memo_xreg(__u64 value) { return (__u32)(value >> WL_MEMO_XREG_SHIFT) & 31; }

/* The registers of a run of plain steps, kept out of memory. */
struct wl_fast {
  __u64 pc;
  __u64 sp;
  __u64 fp;
  __u32 valid;
  __u32 exact; /* as the cursor's, of the frame at hand */
};

/* Is a < b? 1 or 0. Verifiers learn nothing of a and b: they would follow the code behind it once for each outcome of a
 * comparison, for the values that are left. Hacker's Delight, 2-12: the borrow of a - b. */
WL_INLINE __u64 wl_is_below(__u64 a, __u64 b) { return ((~a & b) | ((~a | b) & (a - b))) >> 63; }

/* A plain rule applied: like wl_apply, in fewer instructions. */
WL_INLINE int wl_apply_plain(struct wl_unwind* u, struct wl_fast* fast, __u64 value) {
  __u64 cfa = fast->sp;
  if (value & WL_MEMO_BASE_FP) {
    if (!((fast->valid >> WL_FP) & 1)) return WL_END_REGISTER_LOST;
    cfa = fast->fp;
  }
#ifdef WL_TARGET_A64
  else if (!((fast->valid >> WL_SP) & 1))
    return WL_END_REGISTER_LOST;
#endif
  cfa += wl_memo_cfa_offset(value);
  __u64 grown = cfa - fast->sp;
  if ((grown | (grown - 1)) / WL_MAX_RAW_PIECE) { /* far, or not above sp */
    if (!wl_is_below(fast->sp, cfa)) {
      if (!(value & WL_MEMO_BASE_FP) || u->cursor.backward >= WL_MAX_BACKWARD_STEPS) return WL_END_NO_PROGRESS;
      u->cursor.backward++;
    }
    wl_note_stack(u, fast->sp, cfa);
  }
  __u64 fp = fast->fp, ra = 0;
  __u32 valid = fast->valid & (WL_VALID_BASE | (1u << WL_FP) | (1u << wl_memo_xreg(value)));
#ifdef WL_TARGET_A64
  __u64 record = cfa + wl_memo_fp_offset(value);
  if (wl_read_pair(&u->env, record, record + 8, &fp, &ra)) return WL_END_UNREADABLE_STACK;
  ra = WL_STRIP(&u->env, ra);
  valid |= WL_VALID_BASE | 1u << WL_FP;
#else
  __u64 saved = 0, is_saved = (value & WL_MEMO_FP_SAVED) / WL_MEMO_FP_SAVED;
  if (wl_read_pair(&u->env, cfa + wl_memo_fp_offset(value), cfa - 8, &saved, &ra)) return WL_END_UNREADABLE_STACK;
  fp ^= (fp ^ saved) & -is_saved;
  valid |= (__u32)is_saved << WL_FP;
#endif
  if (ra == 0) return fast->exact ? WL_END_GUESSED : WL_END_COMPLETE;
  fast->pc = ra;
  fast->sp = cfa;
  fast->fp = fp;
  fast->valid = valid;
  fast->exact = 0;
  return WL_CONTINUE;
}

#endif
