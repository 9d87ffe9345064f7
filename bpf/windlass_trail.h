/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Trails: between two samples of a thread most of its stack stays. A walk that comes to a frame of the thread's last
 * walk, with the same registers, follows that walk's frames. It looks no rule up, and compares what the stack holds
 * with what it held. For example, a sample 60 frames deep, of which 4 are new, is 4 frames of work and 56 of comparing.
 *
 * A step by a plain rule reads the stack in two places at most, and depends on nothing else. So a walk that is in the
 * same state and finds the same two words comes to the same next state. One word that differs, or another kind of step
 * in between, and the walk does that step as always. A state is pc, sp, fp and which registers are known; plain steps
 * leave the others alone.
 *
 * Plain C, the same in BPF and in user space.
 */
#ifndef WINDLASS_TRAIL_H
#define WINDLASS_TRAIL_H

#include "windlass_memo.h"

#define WL_TRAIL_MISSES 16u /* After so many the walk does not look for the trail any more. */
#define WL_TRAIL_PIECES 8   /* Pieces of the stack that are followed in one call. */
#define WL_TRAIL_LOOP 16u   /* Frames of the trail in a loop; the verifier goes through every round of it. */
#define WL_TRAIL_LOOKS (WL_TRAIL_MISSES + WL_TRAIL_FRAMES / WL_TRAIL_LOOP) /* Calls of wl_seek_trail in a walk. */
#define WL_NEVER_SP (~0ull)                                                /* No walk comes there. */
#define WL_NEEDS_STEP ((int)WL_END_COUNT + 1)

WL_INLINE __u64 wl_frame_of(__u64 pc, __u32 exact) { return pc | (__u64)exact << 63; }

/* The sum of a stack's frames f0, f1, ... from the innermost: f0 + f1 * k + f2 * k^2 + ... modulo 2^64, each frame's
 * bits mixed first. Frame by frame no step waits for the one before. */
#define WL_SUM_FACTOR 0xd6e8feb86659fd93ull

WL_INLINE void wl_add_frame(struct wl_sum* sum, __u64 frame) {
  frame *= 0x9e3779b97f4a7c15ull;
  sum->value += (frame ^ frame >> 29) * sum->power;
  sum->power *= WL_SUM_FACTOR;
}

/* The trail's frame of that number, which is below WL_TRAIL_FRAMES. The mask is for verifiers, which may have lost
 * sight of the bound. */
WL_INLINE struct wl_trail_frame* wl_on_trail(struct wl_trail* trail, __u32 at) {
  WL_OPAQUE(at);
  return &trail->frames[at & (WL_TRAIL_FRAMES - 1)];
}

/* Begins a walk beside the thread's trail, which is that of another thread or of other code if this one has none. */
WL_GLOBAL int wl_begin_trail(struct wl_scratch* s, struct wl_trail* trail) {
  if (!s || !trail) return 1;
  struct wl_trail_walk* walk = &s->trail;
  if (trail->tid != s->event.head.tid || trail->space != s->unwind.space) trail->count = 0;
  if (trail->tid != s->event.head.tid) trail->keeps_x = 0;
  s->unwind.keeps_x = trail->keeps_x;
  trail->tid = s->event.head.tid;
  trail->space = s->unwind.space;
  wl_expect_stack(&s->unwind.env, trail->count ? trail->frames[0].sp : 0);
  __u32 at = trail->count - 1;
  walk->low_sp = at < WL_TRAIL_FRAMES ? wl_on_trail(trail, at)->sp - 1 : WL_NEVER_SP;
  walk->first_sp = s->unwind.cursor.regs[WL_SP];
  walk->phase = WL_TRAIL_SOUGHT;
  walk->at = at;
  walk->met = walk->misses = walk->count = walk->followed = 0;
  return 0;
}

/* Where a plain rule's step from `sp` to `to` loaded the lower of its two words from, counted from `to`. 0 for steps
 * that are not compared: of another rule, down the stack, or not at multiples of 8 bytes. */
WL_INLINE __s32 wl_trail_saved(__u64 value, __u64 to, __u64 sp) {
  __s32 saved = wl_memo_saved(value);
  if (!value || to <= sp || (to & 7)) return 0;
  return saved ? saved : -8;
}

/* Notes a frame that the walk has come to; without a branch, for the verifier. */
WL_INLINE void wl_note_fresh(struct wl_trail_walk* walk, __u64 frame, __u64 sp, __u64 fp, __u64 valid, __u64 value) {
  struct wl_fresh_frame* fresh = &walk->fresh[walk->count++ & (WL_TRAIL_FRAMES - 1)];
  fresh->frame = frame;
  fresh->sp = sp;
  fresh->fp = fp;
  fresh->value = value;
  fresh->valid = valid;
}

/* Is the cursor in the state of the trail's frame `at`? Never at a frame with bit 63: that is exact, or a pc such as
 * Wine's mark. */
WL_INLINE int wl_is_at(const struct wl_cursor* cursor, struct wl_trail* trail, __u32 at) {
  const struct wl_trail_frame* on = wl_on_trail(trail, at);
  return (__s64)on->frame >= 0 && !cursor->exact && on->frame == cursor->regs[WL_PC] && on->sp == cursor->regs[WL_SP] &&
         on->valid == cursor->valid && on->fp == cursor->regs[WL_FP];
}

/* Notes a frame that wl_step has led to from `sp`. If that is on the trail, the memo may now know the rule. */
WL_INLINE void wl_note_step(struct wl_scratch* s, struct wl_trail* trail, __u64 sp) {
  const struct wl_cursor* cursor = &s->unwind.cursor;
  __u64 value = s->unwind.plain;
  __u32 at = s->trail.at;
  if (s->trail.phase == WL_TRAIL_MET && at < WL_TRAIL_FRAMES && wl_is_at(cursor, trail, at)) {
    wl_on_trail(trail, at)->saved = wl_trail_saved(value, cursor->regs[WL_SP], sp);
  } else {
    wl_note_fresh(&s->trail, wl_frame_of(cursor->regs[WL_PC], cursor->exact), cursor->regs[WL_SP], cursor->regs[WL_FP],
                  cursor->valid, value);
  }
}

/* A step has taken the frame at hand off the stack (Wine's mark). The frames behind it are numbered anew, so the trail
 * ends in front of it. */
WL_INLINE void wl_drop_frame(struct wl_trail_walk* walk) {
  if (walk->phase != WL_TRAIL_MET && walk->phase != WL_TRAIL_PASSED) return;
  walk->phase = WL_TRAIL_LOST;
  walk->low_sp = WL_NEVER_SP;
  walk->followed--;
}

/* Must the next frame be looked for on the trail? */
WL_INLINE int wl_is_near_trail(const struct wl_scratch* s) { return s->unwind.cursor.regs[WL_SP] > s->trail.low_sp; }

/* Goes to the trail's first frame whose sp is not below the cursor's. 1 if the cursor is there. */
WL_GLOBAL int wl_seek_trail(struct wl_scratch* s, struct wl_trail* trail) {
  if (!s || !trail) return 0;
  struct wl_trail_walk* walk = &s->trail;
  const struct wl_cursor* cursor = &s->unwind.cursor;
  __u64 sp = cursor->regs[WL_SP];
  __u32 at = walk->at, passed = 0;
  for (; passed < WL_TRAIL_LOOP; passed++) {
    if (at >= WL_TRAIL_FRAMES || wl_on_trail(trail, at)->sp >= sp) break;
    at--;
  }
  walk->at = at;
  if (passed == WL_TRAIL_LOOP) return 0; /* the next call goes on */
  walk->low_sp = WL_NEVER_SP;
  if (at >= WL_TRAIL_FRAMES) return 0;
  if (wl_is_at(cursor, trail, at)) {
    walk->phase = WL_TRAIL_MET;
    walk->low_sp = 0;
    walk->met = at;
    walk->before = s->unwind.frames;
    walk->new_count = walk->count;
    return 1;
  }
  if (wl_on_trail(trail, at)->sp == sp) at--;
  walk->at = at;
  if (at < WL_TRAIL_FRAMES && ++walk->misses < WL_TRAIL_MISSES) walk->low_sp = wl_on_trail(trail, at)->sp - 1;
  return 0;
}

/* The place of the return address of a step that led to `sp`, with the other word at `low`. */
#ifdef WL_TARGET_A64
#define WL_TRAIL_UPPER(sp, low) ((low) + 8)
#else
#define WL_TRAIL_UPPER(sp, low) ((sp)-8)
#endif

#define WL_PIECE_ENDS (1u << 31) /* The frame behind it must be reached by a step. */
#define WL_PIECE_FAR (1u << 30)  /* The words of the frame behind it are not at hand. */
#define WL_PIECE_FRAMES 0xffffu

/* How many frames of the trail behind frame `at` are reached, by the words of the stack that are at hand: `most` or
 * fewer. The frames that are left on the way go into the sum. */
WL_GLOBAL __u32 wl_compare_trail(struct wl_scratch* s, struct wl_trail* trail, __u32 at, __u32 most) {
  if (!s || !trail || at >= WL_TRAIL_FRAMES) return WL_PIECE_ENDS;
  const struct wl_env* env = &s->unwind.env;
  struct wl_sum sum = s->unwind.sum;
  __u64 frame = wl_on_trail(trail, at)->frame;
  __u32 n = 0, end = 0;
  if (most > at) most = at;
  for (; n < WL_TRAIL_LOOP; n++) {
    end = WL_PIECE_ENDS;
    if (n >= most) break;
    const struct wl_trail_frame* next = wl_on_trail(trail, at - 1 - n);
    __s64 saved = next->saved;
    __u64 low = next->sp + saved, lower, upper;
    if (saved == 0) break;
    end = WL_PIECE_FAR;
    if (wl_peek_pair(env, low, WL_TRAIL_UPPER(next->sp, low), &lower, &upper)) break;
    end = WL_PIECE_ENDS;
    __u64 is_fp = (__u64)((saved + 8) | -(saved + 8)) >> 63; /* the lower word, unless `saved` is -8 */
    if ((WL_STRIP(env, upper) ^ next->frame) | ((lower ^ next->fp) & -is_fp)) break;
    wl_add_frame(&sum, frame);
    frame = next->frame;
    end = 0;
  }
  s->unwind.sum = sum;
  return n | end;
}

/* Follows the trail from the frame at hand, which is on it. As wl_walk_round does, returns WL_NEEDS_STEP at a frame
 * that needs more (it is among the frames already), WL_CONTINUE or the wl_end. */
WL_GLOBAL int wl_follow_trail(struct wl_scratch* s, struct wl_trail* trail) {
  if (!s || !trail) return WL_END_INTERNAL;
  struct wl_unwind* u = &s->unwind;
  struct wl_trail_walk* walk = &s->trail;
  __u32 first = walk->at, at = first;
  if (u->frames >= u->frame_limit) return WL_END_DEPTH;
  __u32 most = u->frame_limit - u->frames - 1;
  for (int i = 0; i < WL_TRAIL_PIECES; i++) {
    __u32 piece = wl_compare_trail(s, trail, at, most);
    __u32 n = piece & WL_PIECE_FRAMES;
    wl_note_served(&u->env, n);
    at -= n;
    most -= n;
    if (piece & WL_PIECE_ENDS) break;
    if (!(piece & WL_PIECE_FAR)) continue;
    __u32 behind = at - 1;
    if (behind >= WL_TRAIL_FRAMES) break;
    const struct wl_trail_frame* next = wl_on_trail(trail, behind);
    __u64 low = next->sp + next->saved;
    if (wl_bring_pair(&u->env, low, WL_TRAIL_UPPER(next->sp, low))) break;
  }
  if (at >= WL_TRAIL_FRAMES || first >= WL_TRAIL_FRAMES) return WL_END_INTERNAL;
  const struct wl_trail_frame* on = wl_on_trail(trail, at);
  struct wl_cursor* cursor = &u->cursor;
  cursor->regs[WL_PC] = on->frame;
  cursor->exact = 0;
  cursor->regs[WL_SP] = on->sp;
  cursor->regs[WL_FP] = on->fp;
  cursor->valid = on->valid;
  wl_add_frame(&u->sum, on->frame);
  __u32 behind = at - 1, passed = first - behind;
  u->frames += passed;
  walk->followed += passed;
  walk->at = behind;
  if (behind >= WL_TRAIL_FRAMES) {
    walk->phase = WL_TRAIL_PASSED;
    walk->low_sp = WL_NEVER_SP;
  }
  return WL_NEEDS_STEP;
}

/* One call of the walk where the trail is near: follows it, or finds that it is not met here. */
WL_GLOBAL int wl_trail_round(struct wl_scratch* s, struct wl_trail* trail) {
  if (!s || !trail) return WL_END_INTERNAL;
  struct wl_trail_walk* walk = &s->trail;
  if (walk->phase == WL_TRAIL_SOUGHT) return wl_seek_trail(s, trail) ? wl_follow_trail(s, trail) : WL_CONTINUE;
  __u32 at = walk->at;
  if (at < WL_TRAIL_FRAMES && wl_is_at(&s->unwind.cursor, trail, at)) return wl_follow_trail(s, trail);
  walk->phase = WL_TRAIL_LOST;
  walk->low_sp = WL_NEVER_SP;
  return WL_CONTINUE;
}

/* Puts the new frame of that number on the trail. */
WL_GLOBAL int wl_keep_frame(const struct wl_trail_walk* walk, struct wl_trail* trail, __u32 number, __u32 to) {
  if (!walk || !trail || to >= WL_TRAIL_FRAMES) return 1;
  const struct wl_fresh_frame* fresh = &walk->fresh[number & (WL_TRAIL_FRAMES - 1)];
  __u64 sp = number ? walk->fresh[(number - 1) & (WL_TRAIL_FRAMES - 1)].sp : walk->first_sp;
  struct wl_trail_frame* kept = wl_on_trail(trail, to);
  kept->frame = fresh->frame;
  kept->sp = fresh->sp;
  kept->fp = fresh->fp;
  kept->valid = fresh->valid;
  /* No plain step leads to an exact frame. */
  kept->saved = (__s64)fresh->frame < 0 ? 0 : wl_trail_saved(fresh->value, fresh->sp, sp);
  return 0;
}

#define WL_TRAIL_KEPT 16u /* In a call; the verifier goes through every round of a loop. */

/* Puts some of the new frames below that of the number on the trail, `most` at most. How many. */
WL_GLOBAL __u32 wl_keep_some_frames(const struct wl_trail_walk* walk, struct wl_trail* trail, __u32 number, __u32 most,
                                    __u32 to) {
  if (!walk || !trail) return 0;
  __u32 kept = 0;
  for (; kept < WL_TRAIL_KEPT; kept++) {
    if (kept >= most || wl_keep_frame(walk, trail, number - kept - 1, to + kept)) break;
  }
  return kept;
}

/* Keeps the walk as the thread's trail: its new frames, in front of those that it followed. Of more than a trail holds,
 * the outer ones stay. */
WL_GLOBAL int wl_keep_trail(struct wl_scratch* s, struct wl_trail* trail) {
  if (!s || !trail) return 1;
  const struct wl_trail_walk* walk = &s->trail;
  __u32 to = walk->met, left = walk->phase == WL_TRAIL_SOUGHT ? walk->count : walk->new_count;
  if (walk->phase != WL_TRAIL_SOUGHT && walk->count > walk->new_count) to = left = 0; /* it left the trail later */
  if (walk->phase != WL_TRAIL_SOUGHT && left > WL_TRAIL_FRAMES) left = 0; /* the outer ones of them are missing */
  __u32 end = left > WL_TRAIL_FRAMES ? left - WL_TRAIL_FRAMES : 0;
  for (__u32 i = 0; i < WL_TRAIL_FRAMES; i += WL_TRAIL_KEPT) {
    __u32 kept = wl_keep_some_frames(walk, trail, left, left - end, to);
    left -= kept;
    to += kept;
    if (kept < WL_TRAIL_KEPT) break;
  }
  trail->count = to;
  if (s->unwind.end != WL_END_REGISTER_LOST || trail->keeps_x) return 0;
  trail->keeps_x = 1; /* the walk may have lost the register itself, and so have the frames on the trail */
  trail->count = 0;
  return 0;
}

#define WL_TRAIL_TAKEN 16u /* In a call; the verifier goes through every round of a loop. */

/* Puts some of the frames that the walk followed among its frames, from the one of that number on. 1 if these were the
 * last. */
WL_GLOBAL int wl_take_some_followed(struct wl_scratch* s, struct wl_trail* trail, __u32 number) {
  if (!s || !trail) return 1;
  const struct wl_trail_walk* walk = &s->trail;
  __u32 to = s->unwind.first + walk->before + number, at = walk->met - number, left = walk->followed - number;
  for (__u32 i = 0; i < WL_TRAIL_TAKEN; i++, at--) {
    if (i >= left || at >= WL_TRAIL_FRAMES) return 1;
    s->frames[(to + i) & (WL_FRAME_SLOTS - 1)] = wl_on_trail(trail, at)->frame;
  }
  return walk->followed == number + WL_TRAIL_TAKEN;
}

WL_GLOBAL int wl_take_followed(struct wl_scratch* s, struct wl_trail* trail) {
  if (!s || !trail) return 1;
  for (__u32 number = 0; number < WL_TRAIL_FRAMES; number += WL_TRAIL_TAKEN) {
    if (wl_take_some_followed(s, trail, number)) break;
  }
  return 0;
}

#endif
