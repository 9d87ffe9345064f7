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
#include "windlass_trail.h"
#ifdef WL_TARGET_A64
#include "windlass_code_a64.h"
#else
#include "windlass_code.h"
#include "windlass_wine.h"
#endif

/* The rule at u->ref applied, and remembered if it was looked up. */
WL_INLINE int wl_step_by_rule(struct wl_unwind* u, struct wl_memo* memo, __u64 pc) {
  const unsigned char* chunk = wl_chunk(&u->env, u->ref);
  if (!chunk) return WL_END_INTERNAL;
  const struct wl_rule* rule = (const struct wl_rule*)(chunk + wl_offset(u->ref));
  __u32 x_reg = u->x_reg;
  if (u->looked_up) {
    struct wl_memo_place place = wl_place_in_memo(u->space, pc, u->piece);
    struct wl_memo_entry* entry = &memo->entries[wl_memo_slot(place.space, place.address)];
    entry->tag = wl_memo_tag(place.space, place.address);
    entry->value = wl_memo_value(place.space, place.address, rule, u->ref, u->x_reg, u->keeps_x);
    if (entry->value & WL_MEMO_PLAIN) u->plain = entry->value;
    if (entry->value & WL_MEMO_LOSES_X) x_reg = WL_NO_XREG;
  }
  return wl_apply(u, (struct wl_rule*)rule, x_reg, pc);
}

/* Steps from a code manager's code, by the row in the manager's table. If there is no row, or the table cannot be read
 * now, the agent knows more. When functions are taken away, an address may have another function's code. So stacks of
 * before and after are not the same, and nothing is left in the memo. */
WL_INLINE int wl_step_managed(struct wl_unwind* u, __u64 pc) {
  int looked = wl_find_managed_rule(u, pc);
  u->hash = wl_mix(u->hash, u->table.header.recycled);
  if (looked != WL_LOOKED_FOUND) return WL_END_NO_ROW;
  u->managed_frames++;
  return wl_apply(u, &u->rule, u->x_reg, pc);
}

/* The cursor stands at another address than the one that is counted among the frames. */
WL_INLINE int wl_stand_at(struct wl_unwind* u, __u64 pc) {
  u->cursor.regs[WL_PC] = pc;
  u->frames--;
  return WL_CONTINUE;
}

/* Steps from the cursor's frame: by its rule, which the memo knows or which is looked up. Code without a rule is left
 * by its instructions. Returns WL_CONTINUE with the caller in the cursor, or the wl_end. */
WL_GLOBAL int wl_step(struct wl_unwind* u, struct wl_memo* memo) {
  if (!u || !memo) return WL_END_INTERNAL;
  u->plain = 0;
  __u64 pc = wl_lookup_pc(&u->cursor);
  int hit;
  const struct wl_memo_entry* entry = wl_memo_find(memo, u->space, pc, u->cursor.exact, &hit);
  u->looked_up = 0;
  if (hit && (entry->value & WL_MEMO_KIND) == WL_MEMO_END) {
    u->memo_hits++;
    return WL_END_COMPLETE;
  }
  if (hit && (entry->value & WL_MEMO_REF)) {
    u->memo_hits++;
    u->ref = wl_memo_ref(entry->value);
    u->x_reg = wl_memo_xreg(entry->value);
  } else {
    u->looked_up = 1;
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
    if (status == WL_END_NO_MAPPING || (status == WL_CONTINUE && u->ref == 0)) {
      __u64 real = wl_probed_pc(&u->env, &u->cursor);
      if (real) return wl_stand_at(u, real);
    }
    /* .NET makes its code executable page by page, and the agent has not heard of the last pages yet. */
    if (status == WL_END_NO_MAPPING) {
      int left = wl_step_heap(u, pc);
      return left == WL_END_NO_ROW ? status : left;
    }
    if (status != WL_CONTINUE) return status;
  }
  if (u->ref == 0 && u->learns) return wl_step_learned(u, pc);
  if (u->ref == 0 && u->managed) return wl_step_managed(u, pc);
  if (u->ref == 0) {
    int left = wl_step_checked(u, pc);
    return left == WL_END_NO_ROW ? wl_step_code(u) : left;
  }
  return wl_step_by_rule(u, memo, pc);
}

/* A run of plain steps at work. */
struct wl_round {
  struct wl_fast fast;
  struct wl_sum sum;
  __u64 plain; /* The bits of a memo's value that tell whether the rule can be applied here. */
  __u32 frames;
};

/* Adds the frame at hand, and leaves it if the memo knows a plain rule. */
WL_INLINE int wl_walk_frame(struct wl_scratch* s, struct wl_memo* memo, struct wl_round* round) {
  struct wl_unwind* u = &s->unwind;
  __u32 exact = round->fast.exact;
  if (round->frames >= u->frame_limit) return WL_END_DEPTH;
  __u64 frame = wl_frame_of(round->fast.pc, exact);
  s->frames[(u->first + round->frames) & (WL_FRAME_SLOTS - 1)] = frame;
  wl_add_frame(&round->sum, frame);
  round->frames++;
  int hit;
  __u64 value = wl_memo_find(memo, u->space, round->fast.pc - 1 + exact, exact, &hit)->value;
  if ((hit ^ 1) | ((value & round->plain) ^ WL_MEMO_PLAIN)) return WL_NEEDS_STEP;
  int status = wl_apply_plain(u, &round->fast, value);
  if (status == WL_CONTINUE)
    wl_note_fresh(&s->trail, round->fast.pc, round->fast.sp, round->fast.fp, round->fast.valid, value);
  return status;
}

#define WL_FRAMES_A_ROUND 6

/* Up to WL_FRAMES_A_ROUND frames whose rules the memo knows, their registers kept out of memory; fewer if the trail is
 * near. WL_NEEDS_STEP at a frame that needs more (it is among the frames already), WL_CONTINUE or the wl_end. */
WL_GLOBAL int wl_walk_round(struct wl_scratch* s, struct wl_memo* memo) {
  if (!s || !memo) return WL_END_INTERNAL;
  struct wl_unwind* u = &s->unwind;
  struct wl_cursor* cursor = &u->cursor;
  struct wl_round round = {
      .fast =
          {
              .pc = cursor->regs[WL_PC],
              .sp = cursor->regs[WL_SP],
              .fp = cursor->regs[WL_FP],
              .valid = cursor->valid,
              .exact = cursor->exact,
          },
      .sum = u->sum,
      .plain = WL_MEMO_PLAIN | (u->keeps_x ? WL_MEMO_LOSES_X : 0),
      .frames = u->frames,
  };
  __u64 low_sp = s->trail.low_sp;
  int status = WL_CONTINUE;
  __u32 i;
  for (i = 0; i < WL_FRAMES_A_ROUND; i++) {
    if (round.fast.sp > low_sp) break;
    status = wl_walk_frame(s, memo, &round);
    if (status != WL_CONTINUE) break;
  }
  cursor->regs[WL_PC] = round.fast.pc;
  cursor->regs[WL_SP] = round.fast.sp;
  cursor->regs[WL_FP] = round.fast.fp;
  cursor->valid = round.fast.valid;
  cursor->exact = round.fast.exact;
  u->sum = round.sum;
  u->frames = round.frames;
  u->memo_hits += i;
  return status;
}

/* What a step from `sp` leaves to do: it came to `status`, and began with so many frames. Returns the walk's status. */
WL_GLOBAL int wl_after_step(struct wl_scratch* s, struct wl_trail* trail, __u64 sp, __u32 frames, int status) {
  if (!s || !trail) return WL_END_INTERNAL;
  if (s->unwind.frames != frames) wl_drop_frame(&s->trail);
  if (s->unwind.taken_count && wl_keep_words(s)) return WL_END_NO_ROW;
  if (status == WL_CONTINUE) wl_note_step(s, trail, sp);
  return status;
}

/* Runs some steps. The verifier goes through every round of a loop, so the loop that the frame limit needs is split: a
 * loop in a function of its own makes three short loops. Returns 0 while there is a caller; else u->end says why not.
 */
#define WL_ROUNDS_A_RUN 12
#define WL_RUNS_A_CALL 24
/* A round is one frame or more, or a look for the trail. */
#define WL_ROUNDS (WL_MAX_USER_FRAMES + 1 + WL_TRAIL_LOOKS)
#define WL_CALLS ((WL_ROUNDS + WL_ROUNDS_A_RUN * WL_RUNS_A_CALL - 1) / (WL_ROUNDS_A_RUN * WL_RUNS_A_CALL))

WL_GLOBAL int wl_walk_run(struct wl_scratch* s, struct wl_memo* memo, struct wl_trail* trail) {
  if (!s || !memo || !trail) return 1;
  int status = WL_CONTINUE;
  for (int i = 0; i < WL_ROUNDS_A_RUN; i++) {
    status = wl_is_near_trail(s) ? wl_trail_round(s, trail) : wl_walk_round(s, memo);
    if (status == WL_NEEDS_STEP) {
      __u64 sp = s->unwind.cursor.regs[WL_SP];
      __u32 frames = s->unwind.frames;
      status = wl_after_step(s, trail, sp, frames, wl_step(&s->unwind, memo));
    }
    if (status != WL_CONTINUE) break;
  }
  if (status == WL_CONTINUE) return 0;
  /* The code that runs at the kernel's initial sp has no caller: the arguments of the program lie there (psABI figure
   * 3.9). */
  if (status == WL_END_GUESSED && s->unwind.cursor.regs[WL_SP] == s->stack_top) status = WL_END_COMPLETE;
  if (status == WL_END_COMPLETE && s->unwind.certainty == WL_GUESSED) status = WL_END_GUESSED;
  /* Some generated code has no frame, and a step by the frame pointer skips it. Where the agent had to check a frame,
   * it checks such steps, too. */
  if (status == WL_END_COMPLETE && s->unwind.steps == (WL_STEPS_CHECKED | WL_STEPS_BY_POINTER)) status = WL_END_GUESSED;
  s->unwind.end = status;
  return 1;
}

/* The same for many steps. */
WL_GLOBAL int wl_walk_runs(struct wl_scratch* s, struct wl_memo* memo, struct wl_trail* trail) {
  if (!s || !memo || !trail) return 1;
  for (int i = 0; i < WL_RUNS_A_CALL; i++) {
    if (wl_walk_run(s, memo, trail)) return 1;
  }
  return 0;
}

/* Unwinds the stack from the cursor to its end, u->end. `trail` is the thread's last walk, and becomes this one. */
WL_INLINE void wl_walk(struct wl_scratch* s, struct wl_memo* memo, struct wl_trail* trail) {
  wl_begin_trail(s, trail);
  s->unwind.steps = 0;
  for (int i = 0; i < (int)WL_CALLS; i++) {
    if (wl_walk_runs(s, memo, trail)) break;
  }
  wl_keep_trail(s, trail);
}

#endif
