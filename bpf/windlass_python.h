/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The list that CPython keeps of what it runs in a thread (struct wl_python has where).
 */
#ifndef WINDLASS_PYTHON_H
#define WINDLASS_PYTHON_H

#include "windlass_interpreted.h"

#define WL_THREADS_A_RUN 8
#define WL_THREAD_RUNS 128

/* The word in a frame that was read; a verifier sees that it is in there. */
#define WL_FRAME_WORD(it, offset) \
  (*(const __u64*)(const void*)((const __u8*)(it)->frame + ((offset) & (WL_INTERPRETER_FRAME_BYTES - 8))))
#define WL_FRAME_HALF(it, offset) \
  (*(const __u32*)(const void*)((const __u8*)(it)->frame + ((offset) & (WL_INTERPRETER_FRAME_BYTES - 4))))
#define WL_FRAME_BYTE(it, offset) (((const __u8*)(it)->frame)[(offset) & (WL_INTERPRETER_FRAME_BYTES - 1)])

/* Is the thread state that was found for a thread before still its? */
WL_INLINE int wl_is_thread_state(struct wl_unwind* u, __u64 state) {
  struct wl_interpreted* it = &u->interpreted;
  if (wl_read(&u->env, &it->value, 8, state + it->layout.python.thread_id)) return 0;
  return it->value == u->thread_pointer;
}

WL_INLINE struct wl_known_thread* wl_thread_slot(struct wl_unwind* u) {
  return &u->interpreted.known[(u->thread_pointer >> 12) & (WL_KNOWN_THREADS - 1)];
}

/* it->thread, the state of thread that was looked at last, and on. */
WL_GLOBAL int wl_find_thread_run(struct wl_unwind* u) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  for (int i = 0; i < WL_THREADS_A_RUN; i++) {
    if (it->thread == 0) return WL_INTERPRETED_NONE;
    if (wl_is_thread_state(u, it->thread)) return WL_INTERPRETED_ALL;
    if (wl_read(&u->env, &it->thread, 8, it->thread + it->layout.python.next_thread)) return WL_INTERPRETED_NONE;
  }
  return WL_INTERPRETED_MORE;
}

/* Puts the thread's state into it->thread. With several interpreters, a thread may have a state in each, and only the
 * thread itself knows which is in use: then none is found. */
WL_GLOBAL int wl_find_thread_state(struct wl_unwind* u) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  it->thread = 0;
  if (wl_read(&u->env, &it->value, 8, it->layout.python.interpreters)) return WL_INTERPRETED_NONE;
  __u64 interpreter = it->value;
  if (interpreter == 0) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, &it->value, 8, interpreter + it->layout.python.next_interpreter) || it->value)
    return WL_INTERPRETED_NONE;
  struct wl_known_thread* known = wl_thread_slot(u);
  if (known->space == u->space && known->thread_pointer == u->thread_pointer && wl_is_thread_state(u, known->state)) {
    it->thread = known->state;
    return WL_INTERPRETED_ALL;
  }
  if (wl_read(&u->env, &it->thread, 8, interpreter + it->layout.python.threads)) return WL_INTERPRETED_NONE;
  int found = WL_INTERPRETED_MORE;
  for (int i = 0; i < WL_THREAD_RUNS && found == WL_INTERPRETED_MORE; i++) found = wl_find_thread_run(u);
  if (found != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
  known->space = u->space;
  known->thread_pointer = u->thread_pointer;
  known->state = it->thread;
  return WL_INTERPRETED_ALL;
}

/* The code object's word at an offset, among those that were read. */
WL_INLINE __u64 wl_code_word(const struct wl_interpreted* it, __u32 offset) {
  return it->code[((offset - it->layout.python.code_words) >> 3) & (WL_CODE_WORDS - 1)];
}

/* The first bytes of its table of lines into it->lines. 0 if done. */
WL_GLOBAL int wl_read_lines(struct wl_unwind* u) {
  if (!u) return 1;
  struct wl_interpreted* it = &u->interpreted;
  __u64 bytes = wl_code_word(it, it->layout.python.code_lines);
  if (wl_read(&u->env, &it->value, 8, bytes + it->layout.python.bytes_size)) return 1;
  __builtin_memset(it->lines, 0, sizeof it->lines);
  __u64 size = it->value;
  if (size > sizeof it->lines) size = sizeof it->lines;
  WL_OPAQUE(size);
  if (size == 0 || size > sizeof it->lines) return size != 0;
  return wl_read(&u->env, it->lines, size, bytes + it->layout.python.bytes_begin);
}

/* Makes it->identity of the code object's words, its lines, and the hashes of its name and file. A string's hash is
 * that of its text. */
WL_GLOBAL int wl_identify_by_contents(struct wl_unwind* u, __u64 code) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  const struct wl_env* env = &u->env;
  if (wl_read(env, it->code, sizeof it->code, code + it->layout.python.code_words)) return WL_INTERPRETED_NONE;
  if (wl_read_lines(u)) return WL_INTERPRETED_NONE;
  __u64 hash = 0;
  for (__u32 i = 0; i < WL_CODE_WORDS; i++)
    hash = wl_mix(wl_mix(hash, it->code[i] & (wl_equal(i, it->layout.python.skipped_word) - 1)), it->lines[i]);
  if (wl_read(env, &it->value, 8, wl_code_word(it, it->layout.python.code_name) + it->layout.python.string_hash))
    return WL_INTERPRETED_NONE;
  hash = wl_mix(hash, it->value);
  if (wl_read(env, &it->value, 8, wl_code_word(it, it->layout.python.code_file) + it->layout.python.string_hash))
    return WL_INTERPRETED_NONE;
  hash = wl_mix(hash, it->value);
  it->identity = (__u32)(hash >> 32);
  return WL_INTERPRETED_ALL;
}

/* The identity of a code object into it->identity. */
WL_GLOBAL int wl_identify_code(struct wl_unwind* u, __u64 code) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (it->layout.python.code_version == 0) return wl_identify_by_contents(u, code);
  if (wl_read(&u->env, &it->identity, 4, code + it->layout.python.code_version)) return WL_INTERPRETED_NONE;
  return it->identity ? WL_INTERPRETED_ALL : WL_INTERPRETED_NONE;
}

/* Takes the frame at it->at, and moves it->at to the caller's frame. */
WL_GLOBAL int wl_take_python_frame(struct wl_scratch* s) {
  if (!s) return WL_INTERPRETED_NONE;
  struct wl_unwind* u = &s->unwind;
  struct wl_interpreted* it = &u->interpreted;
  const struct wl_python* layout = &it->layout.python;
  __u32 size = layout->frame_size;
  if (size > WL_INTERPRETER_FRAME_BYTES) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, it->frame, size, it->at)) return WL_INTERPRETED_NONE;
  it->at = WL_FRAME_WORD(it, layout->frame_previous);
  if (layout->activations == WL_ACTIVATION_SHIM && WL_FRAME_BYTE(it, layout->frame_mark) == WL_OWNED_BY_C) {
    if (it->count == 0) return WL_INTERPRETED_NONE;
    __u32 at = u->first + u->frames + 2 * it->count;
    s->frames[(at - 2) & (WL_FRAME_SLOTS - 1)] |= WL_INTERPRETED_LAST;
    it->hash = wl_mix(it->hash, WL_INTERPRETED_LAST);
  } else {
    __u64 code = WL_FRAME_WORD(it, layout->frame_code) & ~(__u64)WL_REFERENCE_TAG;
    if (wl_identify_code(u, code) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
    __u32 place = layout->code_begin ? (__u32)(WL_FRAME_WORD(it, layout->frame_place) - code - layout->code_begin)
                                     : WL_FRAME_HALF(it, layout->frame_place);
    int last = layout->activations == WL_ACTIVATION_EACH ||
               (layout->activations == WL_ACTIVATION_ENTRY && WL_FRAME_BYTE(it, layout->frame_mark));
    if (wl_add_interpreted(s, code, place, last ? WL_INTERPRETED_LAST : 0)) return WL_INTERPRETED_NONE;
  }
  return it->at ? WL_INTERPRETED_MORE : WL_INTERPRETED_ALL;
}

/* Where the list begins, into it->at. */
WL_GLOBAL int wl_first_python(struct wl_unwind* u) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (u->thread_pointer == 0 || wl_find_thread_state(u) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, &it->at, 8, it->thread + it->layout.python.current)) return WL_INTERPRETED_NONE;
  if (it->at && it->layout.python.has_c_frame &&
      wl_read(&u->env, &it->at, 8, it->at + it->layout.python.c_frame_current))
    return WL_INTERPRETED_NONE;
  return it->at ? WL_INTERPRETED_MORE : WL_INTERPRETED_NONE;
}

#endif
