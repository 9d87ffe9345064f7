/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Reads the control frames of Ruby 3.1 to 3.3 in a thread. These are a stack that grows down from the end of the
 * virtual machine's stack. The execution context knows the innermost frame. A thread-local variable of Ruby holds the
 * context that runs in a thread. While fibers are switched, the thread is not on the machine stack of that context,
 * which then says nothing of the thread.
 *
 * ruby/ruby, branches ruby_3_1 to ruby_3_3: vm_core.h (rb_execution_context_struct, rb_control_frame_t,
 * rb_iseq_constant_body), method.h, internal/imemo.h. The vector of thread-local storage: glibc,
 * sysdeps/x86_64/nptl/tls.h (tcbhead_t), sysdeps/generic/dl-dtv.h.
 */
#ifndef WINDLASS_RUBY_H
#define WINDLASS_RUBY_H

#include "windlass_interpreted.h"

#define WL_DTV 8u        /* in the thread's control block */
#define WL_DTV_ENTRY 16u /* bytes; its first word is where the module's storage is */
#define WL_MAX_TLS_MODULES 65536u

#define WL_MAX_RUBY_STACK (1ull << 32)

#define WL_RUBY_FRAME_READ 40u /* of a frame: pc, sp, iseq, self, ep */
#define WL_RUBY_FINISH 0x20u   /* in a frame's flags: it is the outermost that its evaluator runs */
#define WL_RUBY_MAGIC 0x7fff0001u
#define WL_RUBY_CFUNC 0x55550001u

#define WL_IMEMO(kind) (0x1au | (kind) << 12) /* in an object's flags, by the mask */
#define WL_IMEMO_MASK 0xf01fu
#define WL_IMEMO_METHOD 6u
#define WL_IMEMO_ISEQ 7u
#define WL_ISEQ_BODY 16u
#define WL_BODY_SIZE_WORD 0u    /* its upper half: the number of words of bytecode, */
#define WL_BODY_ENCODED_WORD 1u /* which are there */
#define WL_BODY_FLAGS_WORD 2u   /* of parameters, some of which are set later */
#define WL_BODY_PATH_WORD 8u
#define WL_BODY_LABEL_WORD 10u
#define WL_LAST_NOT_COMPILED 3u /* in a body's first word of compilers */

#define WL_OBJECT_TYPE 0x1fu
#define WL_STRING 5u
#define WL_ARRAY 7u
#define WL_STRING_FLAGS 0x7f01fu /* to 3.1: the type, whether it is embedded, and its length then */
#define WL_STRING_KIND 0x201fu   /* from 3.2 on: the type, and whether it is embedded */
#define WL_STRING_APART 0x2000u  /* not embedded */
#define WL_ARRAY_EMBEDDED 0x2000u
#define WL_ARRAY_FIRST 2u /* words: an embedded array's first element */
#define WL_TEXT_BYTES 64u /* the last ones of a text */

/* A string's text into it->text, a hash. One that is long counts by its length and its last bytes. */
WL_GLOBAL int wl_hash_ruby_text(struct wl_unwind* u, __u64 string) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (wl_read(&u->env, it->lines, 40, string)) return WL_INTERPRETED_NONE;
  if ((it->lines[0] & WL_OBJECT_TYPE) != WL_STRING) return WL_INTERPRETED_NONE;
  int has_length = it->layout.ruby.string_begin > WL_RUBY_STRING_LENGTH, apart = (it->lines[0] & WL_STRING_APART) != 0;
  __u64 hash = wl_mix(it->text, it->lines[0] & (has_length ? WL_STRING_KIND : WL_STRING_FLAGS));
  __u64 length = it->lines[2], at = apart ? it->lines[3] : string + it->layout.ruby.string_begin;
  if (apart || has_length) {
    __u64 size = length < WL_TEXT_BYTES ? length : WL_TEXT_BYTES;
    hash = wl_mix(wl_mix(hash, length), at);
    __builtin_memset(it->lines, 0, WL_TEXT_BYTES);
    WL_OPAQUE(size);
    if (size == 0 || size > WL_TEXT_BYTES) return WL_INTERPRETED_NONE;
    if (wl_read(&u->env, it->lines, size, at + length - size)) return WL_INTERPRETED_NONE;
    for (__u32 i = 0; i < WL_TEXT_BYTES / 8; i++) hash = wl_mix(hash, it->lines[i]);
  } else {
    for (__u32 i = 2; i < 5; i++) hash = wl_mix(hash, it->lines[i]);
  }
  it->text = hash;
  return WL_INTERPRETED_ALL;
}

/* Hashes the texts of label and path. The path is a string, or an array that begins with it. A dead object that is not
 * swept yet still has its contents, but its strings may belong to other objects. */
WL_GLOBAL int wl_hash_ruby_texts(struct wl_unwind* u) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  it->text = 0;
  if (wl_hash_ruby_text(u, it->code[WL_BODY_LABEL_WORD]) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
  __u64 path = it->code[WL_BODY_PATH_WORD];
  if (wl_read(&u->env, it->lines, 24, path)) return WL_INTERPRETED_NONE;
  if ((it->lines[0] & (WL_OBJECT_TYPE | WL_ARRAY_EMBEDDED)) == (WL_ARRAY | WL_ARRAY_EMBEDDED))
    path = it->lines[WL_ARRAY_FIRST];
  return wl_hash_ruby_text(u, path);
}

/* Has one of Ruby's compilers compiled the sequence of that body, or can that not be read? */
WL_GLOBAL int wl_is_compiled_iseq(struct wl_unwind* u, __u64 body) {
  if (!u) return 1;
  struct wl_interpreted* it = &u->interpreted;
  __u64 words = body + it->layout.ruby.compiled, second = it->layout.ruby.compiled_second;
  __u64 third = it->layout.ruby.compiled_third;
  if (wl_read(&u->env, &it->value, 8, words) || it->value > WL_LAST_NOT_COMPILED) return 1;
  if (second && (wl_read(&u->env, &it->value, 8, words + second * 8) || it->value)) return 1;
  return third && (wl_read(&u->env, &it->value, 8, words + third * 8) || it->value);
}

/* Puts the unchanging part of an instruction sequence into it->code: the first words of its body. These hold the
 * bytecode's address and size, the label's, the path's, and the begin and end in the file. A sequence that one of
 * Ruby's compilers has compiled has no identity: that code writes frames only when it must, so they may be old. */
WL_GLOBAL int wl_identify_iseq(struct wl_unwind* u, __u64 iseq) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (wl_read(&u->env, it->code, WL_ISEQ_BODY + 8, iseq)) return WL_INTERPRETED_NONE;
  if ((it->code[0] & WL_IMEMO_MASK) != WL_IMEMO(WL_IMEMO_ISEQ)) return WL_INTERPRETED_NONE;
  __u64 body = it->code[WL_ISEQ_BODY / 8];
  if (wl_read(&u->env, it->code, sizeof it->code, body)) return WL_INTERPRETED_NONE;
  if (wl_is_compiled_iseq(u, body)) return WL_INTERPRETED_NONE;
  if (wl_hash_ruby_texts(u) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
  __u64 hash = wl_mix(it->text, body);
  for (__u32 i = 0; i < WL_CODE_WORDS; i++) hash = wl_mix(hash, i == WL_BODY_FLAGS_WORD ? 0 : it->code[i]);
  it->identity = (__u32)(hash >> 32);
  return WL_INTERPRETED_ALL;
}

/* Likewise of the entry of a method written in C: all but its object's flags. */
WL_GLOBAL int wl_identify_method(struct wl_unwind* u, __u64 method) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (wl_read(&u->env, it->code, 40, method)) return WL_INTERPRETED_NONE;
  if ((it->code[0] & WL_IMEMO_MASK) != WL_IMEMO(WL_IMEMO_METHOD)) return WL_INTERPRETED_NONE;
  __u64 hash = 0;
  for (__u32 i = 1; i < 5; i++) hash = wl_mix(hash, it->code[i]);
  it->identity = (__u32)(hash >> 32);
  return WL_INTERPRETED_ALL;
}

WL_INLINE int wl_identify_ruby(struct wl_unwind* u, __u64 code, __u32 place) {
  return place == WL_NO_PLACE ? wl_identify_method(u, code) : wl_identify_iseq(u, code);
}

/* Takes the frame at it->at, and moves it->at to the caller's frame. Frames of neither Ruby code nor a method written
 * in C are left out, as in Ruby's own backtraces. */
WL_GLOBAL int wl_take_ruby_frame(struct wl_scratch* s) {
  if (!s) return WL_INTERPRETED_NONE;
  struct wl_unwind* u = &s->unwind;
  struct wl_interpreted* it = &u->interpreted;
  if (wl_read(&u->env, it->frame, WL_RUBY_FRAME_READ, it->at)) return WL_INTERPRETED_NONE;
  __u64 pc = it->frame[0], iseq = it->frame[2], ep = it->frame[4];
  if (wl_read(&u->env, it->lines, 24, ep - 16)) return WL_INTERPRETED_NONE;
  __u64 method = it->lines[0], flags = it->lines[2];
  if (iseq && pc) {
    if (wl_identify_iseq(u, iseq) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
    __u64 place = (pc - it->code[WL_BODY_ENCODED_WORD]) / 8;
    if (place > it->code[WL_BODY_SIZE_WORD] >> 32) return WL_INTERPRETED_NONE;
    __u64 last = flags & WL_RUBY_FINISH ? WL_INTERPRETED_LAST : 0;
    if (wl_add_interpreted(s, iseq, (__u32)place, last)) return WL_INTERPRETED_NONE;
    if (last) it->whole = it->count;
  } else if (!iseq && (flags & WL_RUBY_MAGIC) == WL_RUBY_CFUNC) {
    if (wl_identify_method(u, method) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
    if (wl_add_interpreted(s, method, WL_NO_PLACE, 0)) return WL_INTERPRETED_NONE;
  }
  it->at += it->layout.ruby.frame_bytes;
  if (it->at < it->end) return WL_INTERPRETED_MORE;
  it->count = it->whole; /* methods that C has called have no evaluator around them */
  return WL_INTERPRETED_ALL;
}

/* The context that runs in the thread, into it->value. */
WL_GLOBAL int wl_find_ruby_context(struct wl_unwind* u) {
  if (!u) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  if (wl_read(&u->env, &it->value, 8, it->layout.ruby.module)) return WL_INTERPRETED_NONE;
  __u64 module = it->value;
  if (module == 0 || module > WL_MAX_TLS_MODULES) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, &it->value, 8, u->thread_pointer + WL_DTV)) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, &it->value, 8, it->value + module * WL_DTV_ENTRY)) return WL_INTERPRETED_NONE;
  if (wl_read(&u->env, &it->value, 8, it->value + it->layout.ruby.context)) return WL_INTERPRETED_NONE;
  return it->value ? WL_INTERPRETED_ALL : WL_INTERPRETED_NONE;
}

/* Where the list begins and ends, into it->at and it->end: all but the outermost frame, which runs nothing. */
WL_GLOBAL int wl_first_ruby(struct wl_unwind* u) {
  if (!u || wl_find_ruby_context(u) != WL_INTERPRETED_ALL) return WL_INTERPRETED_NONE;
  struct wl_interpreted* it = &u->interpreted;
  __u64 context = it->value;
  if (wl_read(&u->env, it->frame, 24, context)) return WL_INTERPRETED_NONE;
  __u64 stack = it->frame[0], words = it->frame[1];
  it->at = it->frame[2];
  if (wl_read(&u->env, it->frame, 24, context + it->layout.ruby.machine_stack)) return WL_INTERPRETED_NONE;
  __u64 start = it->frame[0], size = it->frame[2];
  if (it->sp > start || start - it->sp > size || words > WL_MAX_RUBY_STACK) return WL_INTERPRETED_NONE;
  __u64 bytes = it->layout.ruby.frame_bytes;
  it->end = stack + words * 8 - bytes;
  if (!bytes || it->at < stack || it->at >= it->end || (it->end - it->at) % bytes) return WL_INTERPRETED_NONE;
  return WL_INTERPRETED_MORE;
}

#endif
