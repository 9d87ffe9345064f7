/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Reads the labels that a program has set for the running thread (windlass_labels_layout.h). The thread stands still,
 * so nothing changes meanwhile; a record that is being written says so. Reading is bounded. Plain C, the same in BPF
 * and in user space.
 */
#ifndef WINDLASS_LABELS_H
#define WINDLASS_LABELS_H

#include "windlass_unwind.h"

#define WL_MAX_STATIC_OFFSET (1ll << 20) /* Offsets of static storage are near 0, addresses are not. */
#define WL_MAX_LABEL_MODULES 65536u
#define WL_FIRST_TOP_HASH 5u /* minTopHash in runtime/map.go: the bytes below mark empty places. */
#define WL_GO_BUCKET_KEYS 1u /* In words: the eight bytes of hashes come before. */
#define WL_GO_BUCKET_VALUES 17u

/* The word at an address into l->value. 0 if it could be read and is not 0. */
WL_INLINE int wl_read_label_word(struct wl_scratch* s, __u64 address) {
  return wl_read(&s->unwind.env, &s->labels.value, 8, address) || s->labels.value == 0;
}

/* The variable at the index at an address: its own address into l->value. */
WL_GLOBAL int wl_find_indexed(struct wl_scratch* s, __u64 index) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  if (wl_read(&s->unwind.env, l->words, 16, index)) return 1;
  __u64 module = l->words[0], offset = l->words[1];
  if (module == 0 || module > WL_MAX_LABEL_MODULES) return 1;
  if (wl_read_label_word(s, s->unwind.thread_pointer + l->source.dtv)) return 1;
  if (wl_read_label_word(s, l->value + module * l->source.dtv_entry)) return 1;
  if (l->value + 1 == 0) return 1; /* glibc: the thread has none yet (TLS_DTV_UNALLOCATED) */
  l->value += offset;
  return 0;
}

/* The address of the thread's variable into l->value. */
WL_GLOBAL int wl_find_label_variable(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  __s64 offset = l->source.variable.offset;
  if (l->source.kind == WL_LABELS_INDEX) return wl_find_indexed(s, l->source.variable.place);
  if (l->source.kind != WL_LABELS_OFFSET) {
    __u64 place = l->source.variable.place + (l->source.kind == WL_LABELS_DESCRIPTOR ? 8 : 0);
    if (wl_read_label_word(s, place)) return 1;
    offset = (__s64)l->value;
    if (offset >= WL_MAX_STATIC_OFFSET) return wl_find_indexed(s, l->value);
  }
  l->value = s->unwind.thread_pointer + offset;
  return 0;
}

/* Some words of a record's attributes into l->hash, from that of the number on. The verifier goes through every round
 * of a loop, so two short loops stand for a long one. */
#define WL_ATTRIBUTE_WORDS_A_CALL 16u
WL_GLOBAL int wl_hash_attributes(struct wl_labels* l, __u32 number, __u32 size) {
  if (!l) return 1;
  __u64 hash = l->hash;
  for (__u32 i = 0; i < WL_ATTRIBUTE_WORDS_A_CALL; i++) {
    if ((number + i) * 8 >= size) break;
    hash = wl_mix(hash, l->text.context.attributes[(number + i) & (WL_ATTRIBUTE_WORDS - 1)]);
  }
  l->hash = hash;
  return 0;
}

/* The record that l->value points to, into l->text and l->hash. */
WL_GLOBAL int wl_read_context(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  struct wl_thread_context* context = &l->text.context;
  __u64 record = l->value;
  if (wl_read(&s->unwind.env, context->trace_id, WL_CONTEXT_HEAD, record) || context->valid != 1) return 1;
  context->reserved = 0;
  if (!l->source.with_ids) {
    __builtin_memset(context->trace_id, 0, sizeof context->trace_id + sizeof context->span_id);
    context->trace_flags = 0;
  }
  __u32 size = context->size;
  if (size > WL_MAX_ATTRIBUTES) context->size = size = WL_MAX_ATTRIBUTES;
  context->attributes[(size >> 3) & (WL_ATTRIBUTE_WORDS - 1)] = 0; /* what is behind the last byte counts, too */
  WL_OPAQUE(size);
  if (size > WL_MAX_ATTRIBUTES) return 1;
  if (size && wl_read(&s->unwind.env, context->attributes, size, record + WL_CONTEXT_HEAD)) return 1;
  const __u64* head = (const __u64*)(const void*)context;
  __u64 hash = 0;
  for (__u32 i = 0; i < 4; i++) hash = wl_mix(hash, head[i]);
  l->hash = hash;
  for (__u32 number = 0; number < WL_ATTRIBUTE_WORDS; number += WL_ATTRIBUTE_WORDS_A_CALL) {
    if (number * 8 >= size) break;
    wl_hash_attributes(l, number, size);
  }
  l->size = 32 + ((size + 7) & ~7u);
  return 0;
}

/* The label whose key and value l->words has, as Go's strings. */
WL_GLOBAL int wl_take_go_label(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  struct wl_go_label* label = &l->text.go[l->count & (WL_GO_LABELS - 1)];
  __u64 key_size = l->words[1], value_size = l->words[3];
  if (key_size > WL_GO_KEY) key_size = WL_GO_KEY;
  if (value_size > WL_GO_VALUE) value_size = WL_GO_VALUE;
  __builtin_memset(label, 0, sizeof *label);
  label->key_size = key_size;
  label->value_size = value_size;
  WL_OPAQUE(key_size);
  WL_OPAQUE(value_size);
  if (key_size > WL_GO_KEY || value_size > WL_GO_VALUE) return 1;
  if (key_size && wl_read(&s->unwind.env, label->key, key_size, l->words[0])) return 1;
  if (value_size && wl_read(&s->unwind.env, label->value, value_size, l->words[2])) return 1;
  const __u64* words = (const __u64*)(const void*)label;
  __u64 hash = l->hash;
  for (__u32 i = 0; i < sizeof *label / 8; i++) hash = wl_mix(hash, words[i]);
  l->hash = hash;
  l->count++;
  l->size = l->count * sizeof *label;
  return 0;
}

/* Those of the map at l->value. One of more than eight has several buckets, and is left out. */
WL_GLOBAL int wl_read_go_map(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  if (wl_read_label_word(s, l->value)) return 1;
  if (wl_read(&s->unwind.env, l->words, 24, l->value)) return 1; /* count, log2 of the buckets in byte 9, buckets */
  if (l->words[0] == 0 || (l->words[1] >> 8 & 0xff) != 0) return 1;
  if (wl_read(&s->unwind.env, l->bucket, sizeof l->bucket, l->words[2])) return 1;
  for (__u32 i = 0; i < WL_GO_LABELS; i++) {
    if ((l->bucket[0] >> (8 * i) & 0xff) < WL_FIRST_TOP_HASH) continue;
    l->words[0] = l->bucket[WL_GO_BUCKET_KEYS + 2 * i];
    l->words[1] = l->bucket[WL_GO_BUCKET_KEYS + 2 * i + 1];
    l->words[2] = l->bucket[WL_GO_BUCKET_VALUES + 2 * i];
    l->words[3] = l->bucket[WL_GO_BUCKET_VALUES + 2 * i + 1];
    if (wl_take_go_label(s)) return 1;
  }
  return l->count == 0;
}

/* Those of the slice at l->value, the first eight. */
WL_GLOBAL int wl_read_go_slice(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  if (wl_read(&s->unwind.env, l->words, 16, l->value)) return 1;
  __u64 at = l->words[0], count = l->words[1];
  if (count > WL_GO_LABELS) count = WL_GO_LABELS;
  for (__u32 i = 0; i < WL_GO_LABELS; i++) {
    if (i >= count) break;
    if (wl_read(&s->unwind.env, l->words, 32, at + i * 32) || wl_take_go_label(s)) return 1;
  }
  return l->count == 0;
}

/* What the goroutine of the thread has. A thread without a goroutine has none. */
WL_GLOBAL int wl_read_go_labels(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  const struct wl_go_labels* go = &l->source.go;
  if (wl_read_label_word(s, s->unwind.thread_pointer + go->first)) return 1;
  if (wl_read_label_word(s, l->value + go->m)) return 1;
  if (wl_read_label_word(s, l->value + go->current)) return 1;
  if (wl_read_label_word(s, l->value + go->labels)) return 1;
  return l->source.kind == WL_LABELS_GO_MAP ? wl_read_go_map(s) : wl_read_go_slice(s);
}

/* The thread's labels, by s->labels.source, into text, size and hash. 0 if it has any. */
WL_GLOBAL int wl_read_labels(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  l->count = 0;
  l->size = 0;
  l->hash = 0;
  if (s->unwind.thread_pointer == 0) return 1;
  if (l->source.kind >= WL_LABELS_GO_MAP) return wl_read_go_labels(s);
  if (wl_find_label_variable(s) || wl_read_label_word(s, l->value)) return 1;
  return wl_read_context(s);
}

#endif
