/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * What Wine's Unix side calls back: from the frame whose return address is the mark to the code on the Unix side's
 * stack that called back. See windlass_wine_layout.h; the agent's is src/walk/by_callback.cpp. Plain C, the same in BPF
 * and in user space.
 */
#ifndef WINDLASS_WINE_H
#define WINDLASS_WINE_H

#include "windlass_step.h"
#include "windlass_wine_layout.h"

/* Is `frame` the Unix side's frame for the callback whose arguments these are? Only the system call that called back
 * has its rsp where the arguments say. 1 or 0, with the next frame in u->room.value, which is 0 if there is none. */
WL_GLOBAL int wl_is_wine_frame(struct wl_unwind* u, __u64 frame, __u64 arguments, __u64 length) {
  if (!u) return 0;
  __u64* word = &u->room.value;
  if (wl_read(&u->env, word, 8, frame + WL_WINE_FRAME_BELOW) || *word == 0 ||
      wl_read(&u->env, u->room.pair, 8, *word + WL_WINE_FRAME_RSP)) {
    *word = 0;
    return 0;
  }
  return ((u->room.pair[0] - length) & ~15ull) == arguments;
}

/* That frame; 0: there is none, or it cannot be read. */
WL_GLOBAL __u64 wl_wine_frame(struct wl_unwind* u, __u64 arguments, __u64 length) {
  if (!u || u->gs_base == 0) return 0;
  if (wl_read(&u->env, &u->room.value, 8, u->gs_base + WL_WINE_TEB_FRAME)) return 0;
  for (__u32 i = 0; i < WL_WINE_CALLBACKS; i++) {
    __u64 frame = u->room.value;
    if (wl_is_wine_frame(u, frame, arguments, length)) return frame;
    if (u->room.value == 0) return 0;
  }
  return 0;
}

/* Where the program's stack goes on, if the thread is on the Unix side's stack and the walk has not left that: the sp
 * of its system call, less the red zone. Else `otherwise`. Where a sample's two stacks are copied, the Unix side's ends
 * at the frame of the system call. */
WL_GLOBAL __u64 wl_windows_sp(struct wl_unwind* u, __u64 otherwise) {
  if (!u || u->gs_base == 0) return otherwise;
  __u64* word = &u->room.value;
  __u64 sp = u->cursor.regs[WL_SP];
  if (wl_read(&u->env, word, 8, u->gs_base + WL_WINE_TEB_FRAME)) return otherwise;
  __u64 frame = *word;
  if (sp >= frame || frame - sp > WL_WINE_UNIX_STACK || (otherwise != 0 && otherwise - sp > frame - sp))
    return otherwise;
  if (wl_read(&u->env, word, 8, frame + WL_WINE_FRAME_RSP) || *word <= WL_RED_ZONE) return otherwise;
  u->left_at = frame + WL_WINE_FRAME_ROOM;
  return *word - WL_RED_ZONE;
}

/* The cursor stands at the mark, which is counted among the frames and is none. */
WL_GLOBAL int wl_step_callback(struct wl_unwind* u) {
  if (!u) return WL_END_INTERNAL;
  struct wl_cursor* cursor = &u->cursor;
  __u64* words = u->room.saved;
  __u64 arguments = cursor->regs[WL_SP] + WL_WINE_CALL_BYTES;
  if (wl_read(&u->env, words, WL_WINE_CALL_BYTES, cursor->regs[WL_SP])) return WL_END_UNREADABLE_STACK;
  if (words[1] != arguments) return WL_END_NO_MAPPING;
  __u64 frame = wl_wine_frame(u, arguments, words[2]);
  if (frame == 0 || wl_read(&u->env, words, 8, frame + WL_WINE_FRAME_SAVED)) return WL_END_NO_MAPPING;
  __u64 rbp = words[0];
  if (((rbp - WL_WINE_FRAME_ROOM) & ~63ull) != frame) return WL_END_NO_MAPPING;
  if (wl_read(&u->env, words, WL_WINE_SAVED_BELOW + 16, rbp - WL_WINE_SAVED_BELOW)) return WL_END_UNREADABLE_STACK;
  if (rbp < cursor->regs[WL_SP] && ++cursor->backward > WL_MAX_BACKWARD_STEPS) return WL_END_NO_PROGRESS;
  cursor->regs[15] = words[0];
  cursor->regs[14] = words[1];
  cursor->regs[13] = words[2];
  cursor->regs[12] = words[3];
  cursor->regs[5] = words[4];
  cursor->regs[4] = words[5];
  cursor->regs[3] = words[6];
  cursor->regs[WL_FP] = words[7];
  cursor->regs[WL_PC] = words[8];
  cursor->regs[WL_SP] = rbp + 16;
  cursor->valid = WL_VALID_BASE | 1u << WL_FP | 1u << 3 | 1u << 4 | 1u << 5 | 15u << 12;
  cursor->exact = 0;
  u->frames--;
  return WL_CONTINUE;
}

#endif
