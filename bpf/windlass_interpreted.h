/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The common part of the readers of interpreters' lists (windlass_python.h, windlass_ruby.h): reading a list in bounded
 * steps, and storing its frames.
 */
#ifndef WINDLASS_INTERPRETED_H
#define WINDLASS_INTERPRETED_H

#include "windlass_unwind.h"

enum wl_interpreted_end {
  WL_INTERPRETED_MORE = 0,
  WL_INTERPRETED_ALL = 1,
  WL_INTERPRETED_NONE = 2, /* it cannot be read, or is no such list */
};

/* A frame with it->identity behind the user frames and those that are there; `last`: WL_INTERPRETED_LAST or 0. 0 if
 * that is a frame, and there was room. */
WL_INLINE int wl_add_interpreted(struct wl_scratch* s, __u64 code, __u32 place, __u64 last) {
  struct wl_unwind* u = &s->unwind;
  struct wl_interpreted* it = &u->interpreted;
  if (code <= 4096 || code >> 56 || it->count >= WL_MAX_INTERPRETED_FRAMES) return 1;
  __u32 at = u->first + u->frames + 2 * it->count;
  code |= last;
  __u64 second = (__u64)place << 32 | it->identity;
  s->frames[at & (WL_FRAME_SLOTS - 1)] = code;
  s->frames[(at + 1) & (WL_FRAME_SLOTS - 1)] = second;
  it->hash = wl_mix(wl_mix(it->hash, code), second);
  it->count++;
  return 0;
}

#endif
