/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * What CPython's evaluator runs in a thread, by the list that CPython itself keeps (struct wl_interpreter has where).
 * Read while the thread stands still: a moment later it is another list. Bounded, and all of the list or nothing. Plain
 * C, the same in BPF and in user space; see windlass_lookup.h for the environment.
 *
 * A frame is given with its code object's address and an identity: code objects are freed and others made in their
 * place, before anybody can ask what the one was called.
 */
#ifndef WINDLASS_INTERPRETER_H
#define WINDLASS_INTERPRETER_H

#include "windlass_unwind.h"

#define WL_THREADS_A_RUN 64
#define WL_THREAD_RUNS 16
#define WL_INTERPRETED_A_RUN 32
#define WL_INTERPRETED_RUNS (WL_MAX_INTERPRETED_FRAMES / WL_INTERPRETED_A_RUN)

enum wl_interpreted_end {
  WL_INTERPRETED_MORE = 0,
  WL_INTERPRETED_ALL = 1,
  WL_INTERPRETED_NONE = 2, /* it cannot be read, or is no such list */
};

/* The word in a frame that was read; a verifier sees that it is in there. */
#define WL_FRAME_WORD(it, offset) \
  (*(const __u64*)(const void*)((const __u8*)(it)->frame + ((offset) & (WL_INTERPRETER_FRAME_BYTES - 8))))
#define WL_FRAME_HALF(it, offset) \
  (*(const __u32*)(const void*)((const __u8*)(it)->frame + ((offset) & (WL_INTERPRETER_FRAME_BYTES - 4))))
#define WL_FRAME_BYTE(it, offset) (((const __u8*)(it)->frame)[(offset) & (WL_INTERPRETER_FRAME_BYTES - 1)])

/* Is the thread state that was found for a thread before still its? */
WL_INLINE int wl_is_thread_state(struct wl_unwind* u, __u64 state) {
  struct wl_interpreted* it = &u->interpreted;
  if (wl_read(&u->env, &it->value, 8, state + it->layout.thread_id)) return 0;
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
    if (wl_read(&u->env, &it->thread, 8, it->thread + it->layout.next_thread)) return WL_INTERPRETED_NONE;
  }
  return WL_INTERPRETED_MORE;
}

/* The thread's state into it->thread. Where there are several interpreters a thread may have a state in each, and
 * nothing outside of the thread itself says which one is in use: then none is found. */
WL_GLOBAL int wl_find_thread_state(struct wl_unwind* u) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  it->thread = 0;
  if (wl_read(&u->env, &it->value, 8, it->layout.interpreters)) return WL_INTERPRETED_NONE;
  __u64 interpreter = it->value;
  if (interpreter == 0) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, &it->value, 8, interpreter + it->layout.next_interpreter) || it->value)
    return WL_INTERPRETED_NONE;
  struct wl_known_thread* known = wl_thread_slot(u);
  if (known->space == u->space && known->thread_pointer == u->thread_pointer && wl_is_thread_state(u, known->state)) {
    it->thread = known->state;
    return WL_INTERPRETED_ALL;
  }
  if (wl_read(&u->env, &it->thread, 8, interpreter + it->layout.threads)) return WL_INTERPRETED_NONE;
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
  return it->code[((offset - it->layout.code_words) >> 3) & (WL_CODE_WORDS - 1)];
}

/* The first bytes of its table of lines into it->lines. 0 if done. */
WL_GLOBAL int wl_read_lines(struct wl_unwind* u) {
  if (!u) return 1;
  struct wl_interpreted* it = &u->interpreted;
  __u64 bytes = wl_code_word(it, it->layout.code_lines);
  if (wl_read(&u->env, &it->value, 8, bytes + it->layout.bytes_size)) return 1;
  __builtin_memset(it->lines, 0, sizeof it->lines);
  __u64 size = it->value;
  if (size > sizeof it->lines) size = sizeof it->lines;
  WL_OPAQUE(size);
  if (size == 0 || size > sizeof it->lines) return size != 0;
  return wl_read(&u->env, it->lines, size, bytes + it->layout.bytes_begin);
}

/* What its words are, and the contents of what is shown of it: a string's hash is of its text. */
WL_GLOBAL int wl_identify_by_contents(struct wl_unwind* u, __u64 code) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  const struct wl_env* env = &u->env;
  if (wl_read(env, it->code, sizeof it->code, code + it->layout.code_words)) return WL_INTERPRETED_NONE;
  if (wl_read_lines(u)) return WL_INTERPRETED_NONE;
  __u64 hash = 0;
  for (__u32 i = 0; i < WL_CODE_WORDS; i++)
    hash = wl_mix(wl_mix(hash, i == it->layout.skipped_word ? 0 : it->code[i]), it->lines[i]);
  if (wl_read(env, &it->value, 8, wl_code_word(it, it->layout.code_name) + it->layout.string_hash))
    return WL_INTERPRETED_NONE;
  hash = wl_mix(hash, it->value);
  if (wl_read(env, &it->value, 8, wl_code_word(it, it->layout.code_file) + it->layout.string_hash))
    return WL_INTERPRETED_NONE;
  hash = wl_mix(hash, it->value);
  it->identity = (__u32)(hash >> 32);
  return WL_INTERPRETED_ALL;
}

/* The identity of a code object into it->identity. */
WL_GLOBAL int wl_identify_code(struct wl_unwind* u, __u64 code) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (it->layout.code_version == 0) return wl_identify_by_contents(u, code);
  if (wl_read(&u->env, &it->identity, 4, code + it->layout.code_version)) return WL_INTERPRETED_NONE;
  return it->identity ? WL_INTERPRETED_ALL : WL_INTERPRETED_NONE;
}

/* The frame at it->at among s->frames, behind the user frames, and it->at the one that called it. */
WL_GLOBAL int wl_take_interpreted_frame(struct wl_scratch* s) {
  if (!s) return WL_INTERPRETED_NONE;
  struct wl_unwind* u = &s->unwind;
  struct wl_interpreted* it = &u->interpreted;
  const struct wl_interpreter* layout = &it->layout;
  __u32 size = layout->frame_size;
  if (size > WL_INTERPRETER_FRAME_BYTES) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, it->frame, size, it->at)) return WL_INTERPRETED_NONE;
  __u32 at = u->first + u->frames + 2 * it->count;
  it->at = WL_FRAME_WORD(it, layout->frame_previous);
  if (layout->activations == WL_ACTIVATION_SHIM && WL_FRAME_BYTE(it, layout->frame_mark) == WL_OWNED_BY_C) {
    if (it->count == 0) return WL_INTERPRETED_NONE;
    s->frames[(at - 2) & (WL_FRAME_SLOTS - 1)] |= WL_INTERPRETED_LAST;
    it->hash = wl_mix(it->hash, WL_INTERPRETED_LAST);
  } else {
    __u64 code = WL_FRAME_WORD(it, layout->frame_code);
    if (code <= 4096 || code >> 56 || it->count >= WL_MAX_INTERPRETED_FRAMES) return WL_INTERPRETED_NONE;
    if (wl_identify_code(u, code) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
    __u32 place = layout->code_begin ? (__u32)(WL_FRAME_WORD(it, layout->frame_place) - code - layout->code_begin)
                                     : WL_FRAME_HALF(it, layout->frame_place);
    if (layout->activations == WL_ACTIVATION_EACH ||
        (layout->activations == WL_ACTIVATION_ENTRY && WL_FRAME_BYTE(it, layout->frame_mark)))
      code |= WL_INTERPRETED_LAST;
    __u64 second = (__u64)place << 32 | it->identity;
    s->frames[at & (WL_FRAME_SLOTS - 1)] = code;
    s->frames[(at + 1) & (WL_FRAME_SLOTS - 1)] = second;
    it->hash = wl_mix(wl_mix(it->hash, code), second);
    it->count++;
  }
  return it->at ? WL_INTERPRETED_MORE : WL_INTERPRETED_ALL;
}

WL_GLOBAL int wl_interpreted_run(struct wl_scratch* s) {
  for (int i = 0; i < WL_INTERPRETED_A_RUN; i++) {
    int status = wl_take_interpreted_frame(s);
    if (status != WL_INTERPRETED_MORE) return status;
  }
  return WL_INTERPRETED_MORE;
}

/* Where the list begins, into it->at. */
WL_GLOBAL int wl_first_interpreted(struct wl_unwind* u) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (u->thread_pointer == 0 || wl_find_thread_state(u) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, &it->at, 8, it->thread + it->layout.current)) return WL_INTERPRETED_NONE;
  if (it->at && it->layout.has_c_frame && wl_read(&u->env, &it->at, 8, it->at + it->layout.c_frame_current))
    return WL_INTERPRETED_NONE;
  return it->at ? WL_INTERPRETED_MORE : WL_INTERPRETED_NONE;
}

/* All that the thread's evaluators run, by u->interpreted.layout: u->interpreted.count frames behind the user frames.
 * None of them if that is not all. They are part of the stack's hash. */
WL_GLOBAL int wl_take_interpreted(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_unwind* u = &s->unwind;
  struct wl_interpreted* it = &u->interpreted;
  it->count = 0;
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
