/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Reads the functions that an interpreter's evaluator runs in a thread, from the list that the interpreter keeps
 * (struct wl_interpreter says where). The list is read while the thread stands still: a moment later it has changed.
 * Reading is bounded, and yields the whole list or nothing. Plain C, the same in BPF and in user space;
 * windlass_lookup.h describes the environment.
 *
 * A frame has its code object's address and an identity. Code objects are freed, and others made in their place, before
 * the agent can ask for a name. The identity tells them apart.
 */
#ifndef WINDLASS_INTERPRETER_H
#define WINDLASS_INTERPRETER_H

#include "windlass_python.h"
#include "windlass_ruby.h"

#define WL_INTERPRETED_A_RUN 32
#define WL_INTERPRETED_RUNS (WL_MAX_INTERPRETED_FRAMES / WL_INTERPRETED_A_RUN)

WL_GLOBAL int wl_interpreted_run(struct wl_scratch* s) {
  if (!s) return WL_INTERPRETED_NONE;
  for (int i = 0; i < WL_INTERPRETED_A_RUN; i++) {
    int status = s->unwind.interpreted.layout.kind == WL_RUBY ? wl_take_ruby_frame(s) : wl_take_python_frame(s);
    if (status != WL_INTERPRETED_MORE) return status;
  }
  return WL_INTERPRETED_MORE;
}

/* Where the list begins, into it->at. */
WL_GLOBAL int wl_first_interpreted(struct wl_unwind* u) {
  if (!u || u->thread_pointer == 0) return WL_INTERPRETED_NONE;
  return u->interpreted.layout.kind == WL_RUBY ? wl_first_ruby(u) : wl_first_python(u);
}

/* Puts the present identity of the code object at an address into it->identity. `place` is that of the frame. */
WL_INLINE int wl_identify_interpreted(struct wl_unwind* u, __u64 code, __u32 place) {
  return u->interpreted.layout.kind == WL_RUBY ? wl_identify_ruby(u, code, place) : wl_identify_code(u, code);
}

/* All that the thread's evaluators run, by u->interpreted.layout: u->interpreted.count frames behind the user frames.
 * None of them if that is not all. They are part of the stack's hash. */
WL_GLOBAL int wl_take_interpreted(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_unwind* u = &s->unwind;
  struct wl_interpreted* it = &u->interpreted;
  it->count = 0;
  it->whole = 0;
  it->hash = 0;
  int status = wl_first_interpreted(u);
  for (__u32 i = 0; i < WL_INTERPRETED_RUNS + 1 && status == WL_INTERPRETED_MORE; i++) status = wl_interpreted_run(s);
  if (status != WL_INTERPRETED_ALL) it->count = 0;
  /* The state may have been freed, and its memory still say whose it was. */
  if (it->count == 0) wl_thread_slot(u)->state = 0;
  if (it->count) u->hash = wl_mix(u->hash, it->hash);
  return 0;
}

#endif
