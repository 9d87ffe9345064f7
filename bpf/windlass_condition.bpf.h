/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The conditions of windlass_condition_layout.h, asked before anything of a sample is looked at. The record is read as
 * kernel memory at its address: the verifier allows no other access at an offset that it does not know, and no address
 * made of the context itself (6.1).
 */
#ifndef WINDLASS_CONDITION_BPF_H
#define WINDLASS_CONDITION_BPF_H

#include "windlass_condition_layout.h"

const volatile __u8 wl_has_conditions = 0; /* of any event */

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32); /* the event's number */
  __type(value, struct wl_conditions);
} conditions SEC(".maps");

WL_INLINE int wl_text_is(const struct wl_condition* c, __u64 field) {
  __u64 text[WL_MAX_CONDITION_TEXT / 8] = {};
  __u32 room = WL_MAX_CONDITION_TEXT;
  if (c->kind == WL_FIELD_TEXT) {
    if (c->size < room) room = c->size + 1; /* a text that fills its field has no zero */
  } else {
    __u32 place = 0;
    bpf_probe_read_kernel(&place, sizeof place, (void*)field);
    field += (place & 0xffff) + (c->kind == WL_FIELD_TEXT_BEHIND ? 4 : -(__u64)c->offset);
  }
  bpf_probe_read_kernel_str(text, room, (void*)field);
  for (__u32 i = 0; i < WL_MAX_CONDITION_TEXT / 8; i++) {
    if (text[i] != c->value[i]) return 0;
  }
  return 1;
}

WL_INLINE int wl_number_compares(const struct wl_condition* c, __u64 field) {
  __u64 number = 0, value = c->value[0];
  bpf_probe_read_kernel(&number, sizeof number, (void*)field);
  __u32 above = (64 - 8 * c->size) & 63;
  int is_signed = c->kind == WL_FIELD_SIGNED;
  number = is_signed ? (__u64)((__s64)(number << above) >> above) : number << above >> above;
  if (c->comparison == WL_EQUAL) return number == value;
  if (c->comparison == WL_HAS_BIT) return (number & value) != 0;
  if (number == value) return c->comparison == WL_AT_MOST;
  return is_signed ? (__s64)number < (__s64)value : number < value;
}

/* `context`: the tracepoint's record, as its format file describes it. */
WL_INLINE int wl_meets_conditions(void* context, __u32 event) {
  if (!wl_has_conditions) return 1;
  __u64 record = 0;
  bpf_probe_read_kernel(&record, sizeof record, &context);
  struct wl_conditions* list = bpf_map_lookup_elem(&conditions, &event);
  if (!list || !list->count) return 1;
  __u32 next = 0;
  for (__u32 i = 0; i < WL_MAX_CONDITIONS && next < WL_MAX_CONDITIONS; i++) {
    WL_OPAQUE(next);
    const struct wl_condition* c = &list->of[next & (WL_MAX_CONDITIONS - 1)];
    __u64 field = record + c->offset;
    int holds = c->kind >= WL_FIELD_TEXT ? wl_text_is(c, field) : wl_number_compares(c, field);
    next = holds ? c->if_true : c->if_false;
  }
  return next == WL_CONDITION_PASS;
}

#endif
