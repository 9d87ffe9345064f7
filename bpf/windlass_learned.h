/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Leaves frames of a runtime's code as the agent has said (windlass_learned_layout.h). Plain C, the same in BPF and in
 * user space; windlass_lookup.h describes the environment. The includer also provides wl_find_learned().
 */
#ifndef WINDLASS_LEARNED_H
#define WINDLASS_LEARNED_H

#ifndef WL_TARGET_A64
#include "windlass_code.h"
#include "windlass_coreclr.h"
#endif
#include "windlass_step.h"

/* Puts the words to take along into u->taken. Returns 1 if one of them is not known, or cannot be read, or is below the
 * stack pointer: a prologue has not written it yet. */
WL_GLOBAL int wl_take_words(struct wl_unwind* u) {
  if (!u) return 1;
  for (__u32 i = 0; i < WL_MOST_TAKEN; i++) {
    if (i >= u->learned.taken_count) break;
    struct wl_taken taken = u->learned.taken[i];
    if (taken.reg >= WL_RULE_REGISTERS || !WL_VALID(&u->cursor, taken.reg & WL_REGISTER_MASK)) return 1;
    u->room.value = u->cursor.regs[taken.reg & WL_REGISTER_MASK];
    if (!(taken.flags & WL_TAKEN_REGISTER)) {
      __u64 at = u->room.value + taken.offset;
      if (at < u->cursor.regs[WL_SP] || wl_read(&u->env, &u->room.value, 8, at)) return 1;
    }
    if (taken.flags >> WL_TAKEN_BEHIND) {
      __u64 at = (u->room.value & ~WL_TAKEN_TAG) + (taken.flags >> WL_TAKEN_BEHIND) * 8;
      if (wl_read(&u->env, &u->room.value, 8, at)) return 1;
    }
    if (!(taken.flags & WL_TAKEN_SILENT)) u->hash = wl_mix(u->hash, u->room.value);
    u->taken[i] = u->room.value;
  }
  u->taken_count = u->learned.taken_count;
  return 0;
}

/* The words of the frame that was left last go behind those of the frames before. Returns 1 if there is no room. */
WL_GLOBAL int wl_keep_words(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_unwind* u = &s->unwind;
  __u32 at = (__u32)s->taken_words, count = u->taken_count;
  u->taken_count = 0;
  if (count > WL_MOST_TAKEN || at + 1 + count > WL_MAX_TAKEN_WORDS) return 1;
  s->taken[at & (WL_MAX_TAKEN_WORDS - 1)] = (__u64)count << 32 | (u->frames - 1);
  for (__u32 i = 0; i < WL_MOST_TAKEN; i++) {
    if (i >= count) break;
    s->taken[(at + 1 + i) & (WL_MAX_TAKEN_WORDS - 1)] = u->taken[i];
  }
  s->taken_words = at + 1 + count;
  return 0;
}

/* Is the code still that of u->learned? 1 or 0. */
WL_INLINE int wl_guard_holds(struct wl_unwind* u) {
  if (!u->learned.guard_address) return 1;
  if (wl_read(&u->env, &u->room.value, 8, u->learned.guard_address)) return 0;
  return (u->room.value & u->learned.guard_mask) == u->learned.guard_value;
}

/* The same of a block of a function, whose rule is proved. */
WL_INLINE int wl_is_same_block(struct wl_unwind* u, __u64 block) {
  if (!u->learned.guard_address) return 1;
  if (wl_read(&u->env, u->room.block, WL_GUARD_WORDS * 8, u->learned.guard_address)) return 0;
  __u64 begin = wl_sum_of_words(0, u->room.block, WL_GUARD_WORDS);
  if (wl_read(&u->env, u->room.block, WL_LEARNED_BLOCK_BYTES, block)) return 0;
  return wl_block_guard(begin, u->room.block) == u->learned.guard_value;
}

/* Copies what was learned for a key to u->learned. 0: nothing. */
WL_INLINE int wl_recall_key(struct wl_unwind* u, const struct wl_learned_key* key) {
  const struct wl_learned* found = wl_find_learned(&u->env, key);
  if (!found) return 0;
  u->learned = *found;
  return u->learned.check == wl_learned_check(&u->learned, *key);
}

/* Copies what was learned of an address to u->learned. Returns 0 if there is nothing of this kind, or of other code. */
WL_GLOBAL int wl_recall(struct wl_unwind* u, __u64 pc, __u32 kind) {
  if (!u) return 0;
  __u32 shift = kind & WL_LEARNED_LARGE ? WL_LEARNED_PIECE_SHIFT : 0;
  __u64 place = pc & (((kind & WL_LEARNED_HEAP ? WL_LEARNED_HEAP_BYTES : WL_LEARNED_BLOCK_BYTES) << shift) - 1);
  struct wl_learned_key key = {
      .pc = kind & (WL_LEARNED_BLOCK | WL_LEARNED_HEAP) ? pc - place : pc,
      .epoch = u->epoch,
      .tgid = u->tgid,
      .kind = kind,
  };
  if (!wl_recall_key(u, &key)) return 0;
  if (kind & WL_LEARNED_HEAP || (kind & (WL_LEARNED_STEP | WL_LEARNED_BLOCK)) == WL_LEARNED_STEP) return 1;
  if ((kind & WL_LEARNED_BLOCK) && !(u->learned.places >> (place >> shift & 63) & 1)) return 0;
  return kind & WL_LEARNED_STEP ? wl_is_same_block(u, key.pc) : wl_guard_holds(u);
}

/* Steps from a frame of .NET's code, if the address is in a heap that is known. */
WL_INLINE int wl_step_heap(struct wl_unwind* u, __u64 pc) {
#ifdef WL_TARGET_A64
  (void)u, (void)pc;
  return WL_END_NO_ROW;
#else
  if (!wl_recall(u, pc, WL_LEARNED_HEAP) || wl_find_method_rule(u, pc)) return WL_END_NO_ROW;
  u->learned_frames++;
  return wl_apply(u, &u->rule, WL_NO_XREG, pc);
#endif
}

/* Steps from a frame of a runtime's code. If nothing was learned for it, or the code has changed, the agent knows more.
 * What tells the code from other code at this address is in the hash: a counter has the stacks of one of them. Nothing
 * is left in the memo. */
WL_GLOBAL int wl_step_learned(struct wl_unwind* u, __u64 pc) {
  if (!u) return WL_END_INTERNAL;
  __u32 exact = u->cursor.exact;
  int known = wl_recall(u, pc, WL_LEARNED_BLOCK) || wl_recall(u, pc, WL_LEARNED_BLOCK | WL_LEARNED_LARGE);
  if (!known && exact) known = wl_recall(u, pc, WL_LEARNED_BLOCK | WL_LEARNED_EXACT);
  if (!known && !wl_recall(u, pc, exact)) return wl_step_heap(u, pc);
  if (u->learned.guard_address) u->hash = wl_mix(u->hash, u->learned.guard_value);
  if (wl_take_words(u)) return WL_END_NO_ROW;
  u->learned_frames++;
  return wl_apply(u, &u->learned.rule, WL_NO_XREG, pc);
}

#ifndef WL_TARGET_A64

/* Has the agent checked the return address that `word` stands for with the step in u->room.steady? */
WL_GLOBAL int wl_has_caller(struct wl_unwind* u, __u64 pc, __u64 word) {
  if (!u || !word) return 0;
  const struct wl_steady* step = &u->room.steady;
  for (__u32 i = 0; i < WL_STEADY_CALLERS; i++) {
    if (step->callers[i] == word) return 1;
  }
  struct wl_learned_key key = {
      .pc = pc,
      .epoch = word,
      .tgid = u->tgid,
      .kind = WL_LEARNED_CALL | u->cursor.exact,
  };
  return wl_recall_key(u, &key) && ((const struct wl_steady*)&u->learned)->guard == u->epoch;
}

/* Has it checked this return address, or need it not? */
WL_GLOBAL int wl_is_checked_call(struct wl_unwind* u, __u64 pc, __u64 caller) {
  if (!u || !caller) return 0;
  __u64 guard = u->room.steady.guard;
  if (u->room.steady.callers[0] == WL_ANY_CALLER) return wl_is_return_address(u, caller);
  if (wl_has_caller(u, pc, wl_caller_word(caller, 0, guard))) return 1;
  if (wl_read(&u->env, &u->room.value, 8, caller - 8)) return 0;
  return wl_has_caller(u, pc, wl_caller_word(caller, u->room.value, guard));
}

/* Is the code at the pc what it was when the step in u->room.steady was checked? */
WL_INLINE int wl_is_same_code(struct wl_unwind* u) {
  if (!u->room.steady.guard) return 1;
  __u64* words = (__u64*)&u->learned; /* that is in u->room.steady now */
  if (wl_read(&u->env, words, WL_GUARD_WORDS * 8, u->cursor.regs[WL_PC] - WL_GUARD_BEFORE)) return 0;
  return wl_code_guard(words) == u->room.steady.guard;
}

/* Is the frame at hand laid out as the step in u->room.steady says, with its CFA at `cfa`? */
WL_INLINE int wl_is_laid_out(const struct wl_unwind* u, __u64 cfa) {
  const struct wl_steady* step = &u->room.steady;
  const struct wl_cursor* cursor = &u->cursor;
  __u64 size = cfa - cursor->regs[WL_SP];
  if ((cfa & 7) || size - 1 >= WL_MAX_FRAME_SIZE) return 0;
  if (step->from_sp && size != (__u64)(__s64)step->from_sp) return 0;
  return !step->from_fp || (WL_VALID(cursor, WL_FP) && cfa - cursor->regs[WL_FP] == (__u64)(__s64)step->from_fp);
}

/* Is the word of the stack that the step in u->room.steady asks about as it says? */
WL_GLOBAL int wl_has_word(struct wl_unwind* u) {
  if (!u) return 0;
  const struct wl_steady* step = &u->room.steady;
  __u32 kind = step->word;
  if (kind == WL_WORD_ANY) return 1;
  if (wl_read(&u->env, &u->room.value, 8, u->cursor.regs[WL_SP] + step->word_at)) return 0;
  __u64 value = u->room.value;
  if (kind == WL_WORD_ZERO) return value == 0;
  if ((__s64)value < 0) return 1; /* wl_find_mapping() takes none of these */
  return value != 0 && !wl_is_return_address(u, value);
}

#endif

#ifndef WL_TARGET_A64

/* Copies what was learned of a step at an address to u->room.steady. 0: nothing. */
WL_GLOBAL int wl_recall_step(struct wl_unwind* u, __u64 pc) {
  if (!u) return 0;
  struct wl_steady* step = &u->room.steady;
  if (wl_recall(u, pc, WL_LEARNED_STEP | u->cursor.exact)) {
    __builtin_memcpy(step, &u->learned, sizeof *step);
    return 1;
  }
  if (!wl_recall(u, pc, WL_LEARNED_STEP | WL_LEARNED_BLOCK) &&
      !wl_recall(u, pc, WL_LEARNED_STEP | WL_LEARNED_BLOCK | WL_LEARNED_LARGE))
    return 0;
  __builtin_memset(step, 0, sizeof *step);
  step->rule = u->learned.rule;
  step->certainty = WL_PROVED;
  step->callers[0] = WL_ANY_CALLER;
  return 1;
}

#endif

/* Steps from code without a rule as the agent does, if it has checked the same step before. Else returns
 * WL_END_NO_ROW, with the frame as it was. */
WL_GLOBAL int wl_step_checked(struct wl_unwind* u, __u64 pc) {
#ifdef WL_TARGET_A64
  (void)u, (void)pc;
  return WL_END_NO_ROW;
#else
  if (!u || !wl_recall_step(u, pc)) return WL_END_NO_ROW;
  const struct wl_steady* step = &u->room.steady;
  __u32 certainty = step->certainty;
  if (!wl_is_same_code(u) || !wl_has_word(u)) return WL_END_NO_ROW;
  if (step->rule.ra_kind == WL_REG_UNDEFINED)
    return step->from_fp && (!WL_VALID(&u->cursor, WL_FP) || u->cursor.regs[WL_FP]) ? WL_END_NO_ROW : WL_END_COMPLETE;
  __u32 reg = step->rule.cfa_reg;
  if (step->rule.cfa_kind != WL_CFA_REG || reg >= WL_RULE_REGISTERS || !WL_VALID(&u->cursor, reg)) return WL_END_NO_ROW;
  __u64 cfa = u->cursor.regs[reg & WL_REGISTER_MASK] + step->rule.cfa_offset;
  if (!wl_is_laid_out(u, cfa) || wl_read(&u->env, &u->room.value, 8, cfa - 8)) return WL_END_NO_ROW;
  __u64 caller = u->room.value;
  if (!wl_is_checked_call(u, pc, caller)) return WL_END_NO_ROW;
  u->rule = step->rule;
  if (wl_apply(u, &u->rule, WL_NO_XREG, pc) != WL_CONTINUE) return WL_END_NO_ROW;
  if (u->cursor.regs[WL_PC] != caller) return WL_END_BAD_FRAME_POINTER; /* another thread has written there */
  if (u->certainty < certainty) u->certainty = certainty;
  if (u->generated != WL_GENERATED_NOW) u->steps |= WL_STEPS_CHECKED;
  return WL_CONTINUE;
#endif
}

#endif
