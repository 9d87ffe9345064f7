/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The walk: one step from wherever the cursor is, and runs of steps whose rules the memo knows. Plain C, the same in
 * BPF and in user space.
 */
#ifndef WINDLASS_WALK_H
#define WINDLASS_WALK_H

#include "windlass_learned.h"
#include "windlass_lookup.h"
#include "windlass_managed.h"
#include "windlass_memo.h"
#ifdef WL_TARGET_A64
#include "windlass_code_a64.h"
#else
#include "windlass_code.h"
#include "windlass_wine.h"
#endif

/* The rule at u->ref applied, and remembered in `entry`. */
WL_INLINE int wl_step_by_rule(struct wl_unwind* u, struct wl_memo_entry* entry, __u64 pc) {
  const unsigned char* chunk = wl_chunk(&u->env, u->ref);
  if (!chunk) return WL_END_INTERNAL;
  const struct wl_rule* rule = (const struct wl_rule*)(chunk + wl_offset(u->ref));
  entry->tag = wl_memo_tag(u->space, pc);
  entry->value = wl_memo_value(u->space, pc, rule, u->ref, u->x_reg);
  return wl_apply(u, (struct wl_rule*)rule, u->x_reg, pc);
}

/* Steps from a code manager's code, by the row in the manager's table. If there is no row, or the table cannot be read
 * now, the agent knows more. When functions are taken away, an address may have another function's code. So stacks of
 * before and after are not the same, and nothing is left in the memo. */
WL_GLOBAL int wl_step_managed(struct wl_unwind* u, __u64 pc) {
  if (!u) return WL_END_INTERNAL;
  int looked = wl_find_managed_rule(u, pc);
  u->hash = wl_mix(u->hash, u->table.header.recycled);
  if (looked != WL_LOOKED_FOUND) return WL_END_NO_ROW;
  u->managed_frames++;
  return wl_apply(u, &u->rule, u->x_reg, pc);
}

/* Steps from the cursor's frame: by its rule, which the memo knows or which is looked up. Code without a rule is left
 * by its instructions. Returns WL_CONTINUE with the caller in the cursor, or the wl_end. */
WL_GLOBAL int wl_step(struct wl_unwind* u, struct wl_memo* memo) {
  if (!u || !memo) return WL_END_INTERNAL;
  __u64 pc = wl_lookup_pc(&u->cursor);
  struct wl_memo_entry* entry = &memo->entries[wl_memo_slot(u->space, pc)];
  if (wl_memo_hit(entry, u->space, pc) && (entry->value & WL_MEMO_REF)) {
    u->memo_hits++;
    u->ref = wl_memo_ref(entry->value);
    u->x_reg = wl_memo_xreg(entry->value);
  } else {
    int status = wl_find_rule(u, pc);
#ifdef WL_TARGET_A64
    /* A handler returns to the first instruction of the trampoline, which may be the first of its mapping. */
    if (status == WL_END_NO_MAPPING && !u->cursor.exact && WL_VALID(&u->cursor, WL_SP) &&
        wl_code_is_restorer(u, u->cursor.regs[WL_PC]))
      return wl_step_signal(u, u->cursor.regs[WL_SP]);
#else
    if (status == WL_END_NO_MAPPING && u->cursor.regs[WL_PC] == WL_WINE_MARK && !u->cursor.exact && u->frames)
      return wl_step_callback(u);
#endif
    if (status != WL_CONTINUE) return status;
  }
  if (u->ref == 0 && u->learns) return wl_step_learned(u, pc);
  if (u->ref == 0) return u->managed ? wl_step_managed(u, pc) : wl_step_code(u);
  return wl_step_by_rule(u, entry, pc);
}

#define WL_FRAMES_A_ROUND 8
#define WL_NEEDS_STEP ((int)WL_END_COUNT + 1)

/* Up to WL_FRAMES_A_ROUND frames whose rules the memo knows, their registers kept out of memory. WL_NEEDS_STEP at a
 * frame that needs more (it is among the frames already), WL_CONTINUE or the wl_end. */
WL_GLOBAL int wl_walk_round(struct wl_scratch* s, struct wl_memo* memo) {
  if (!s || !memo) return WL_END_INTERNAL;
  struct wl_unwind* u = &s->unwind;
  struct wl_cursor* cursor = &u->cursor;
  struct wl_fast fast = {
      .pc = cursor->regs[WL_PC],
      .sp = cursor->regs[WL_SP],
      .fp = cursor->regs[WL_FP],
      .valid = cursor->valid,
      .exact = cursor->exact,
  };
  __u64 hash = u->hash;
  __u32 n = u->frames;
  int status = WL_CONTINUE;
  __u32 i;
  for (i = 0; i < WL_FRAMES_A_ROUND; i++) {
    if (n >= u->frame_limit) {
      status = WL_END_DEPTH;
      break;
    }
    __u64 frame = fast.pc | (__u64)fast.exact << 63;
    __u64 pc = fast.pc - 1 + fast.exact;
    s->frames[(u->first + n) & (WL_FRAME_SLOTS - 1)] = frame;
    hash = wl_mix(hash, frame);
    n++;
    struct wl_memo_entry* entry = &memo->entries[wl_memo_slot(u->space, pc)];
    if (!wl_memo_hit(entry, u->space, pc) || !(entry->value & WL_MEMO_PLAIN)) {
      status = WL_NEEDS_STEP;
      break;
    }
    status = wl_apply_plain(u, &fast, entry->value);
    if (status != WL_CONTINUE) break;
  }
  cursor->regs[WL_PC] = fast.pc;
  cursor->regs[WL_SP] = fast.sp;
  cursor->regs[WL_FP] = fast.fp;
  cursor->valid = fast.valid;
  cursor->exact = fast.exact;
  u->hash = hash;
  u->frames = n;
  u->memo_hits += i;
  return status;
}

/* Runs many steps. The verifier goes through every round of a loop, so the loop that the frame limit needs is split: a
 * loop in a function of its own makes two short loops. Returns 0 while there is a caller; else u->end says why not. */
#define WL_ROUNDS_A_RUN 64
#define WL_RUNS ((WL_MAX_USER_FRAMES + 1 + WL_ROUNDS_A_RUN - 1) / WL_ROUNDS_A_RUN) /* a round is one frame or more */

WL_GLOBAL int wl_walk_run(struct wl_scratch* s, struct wl_memo* memo) {
  if (!s || !memo) return 1;
  for (int i = 0; i < WL_ROUNDS_A_RUN; i++) {
    int status = wl_walk_round(s, memo);
    if (status == WL_NEEDS_STEP) {
      status = wl_step(&s->unwind, memo);
      if (s->unwind.taken_count && wl_keep_words(s)) status = WL_END_NO_ROW;
    }
    /* The code that runs at the kernel's initial sp has no caller: the arguments of the program lie there (psABI figure
     * 3.9). */
    if (status == WL_END_GUESSED && s->unwind.cursor.regs[WL_SP] == s->stack_top) status = WL_END_COMPLETE;
    if (status == WL_END_COMPLETE && s->unwind.certainty == WL_GUESSED) status = WL_END_GUESSED;
    if (status != WL_CONTINUE) {
      s->unwind.end = status;
      return 1;
    }
  }
  return 0;
}

/* Unwinds the stack from the cursor to its end, u->end. */
WL_INLINE void wl_walk(struct wl_scratch* s, struct wl_memo* memo) {
  for (int i = 0; i < (int)WL_RUNS; i++) {
    if (wl_walk_run(s, memo)) break;
  }
}

#endif
