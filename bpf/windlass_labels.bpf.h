/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The labels of a sample: a hash in its event, and an event of their own when they have not been sent lately.
 */
#ifndef WINDLASS_LABELS_BPF_H
#define WINDLASS_LABELS_BPF_H

#include "windlass_event.bpf.h"
#include "windlass_labels.h"

/* Sends the labels in s->labels. 0 if the agent has them. */
WL_GLOBAL int wl_send_labels(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_labels* l = &s->labels;
  __u32 slot = (__u32)l->event.head.labels & (WL_KNOWN_LABELS - 1), size = l->size;
  __u64* known = bpf_map_lookup_elem(&known_labels, &slot);
  if (!known) return 1;
  if (*known == l->event.head.labels) return 0;
  wl_stamp(&l->event.head);
  l->event.head.type = WL_EVENT_LABELS;
  l->event.kind = l->source.kind;
  l->event.size = size;
  WL_OPAQUE(size);
  if (size > sizeof l->text) return 1;
  if (bpf_ringbuf_output(&events, &l->event, sizeof l->event + size, wl_wakeup())) return 1;
  *known = l->event.head.labels; /* behind the event, so that samples which refer to it come behind it, too */
  return 0;
}

/* Gives the sample at hand the labels of its thread. They tell its stack from the same one with others. */
WL_GLOBAL int wl_take_labels(struct wl_scratch* s, struct wl_trail* trail) {
  if (!s || !trail) return 1;
  struct wl_labels* l = &s->labels;
  l->source = trail->process.labels;
  if (wl_read_labels(s)) return 1;
  l->event.head.tgid = s->event.head.tgid;
  l->event.head.tid = s->event.head.tid;
  l->event.head.cpu = s->event.head.cpu;
  /* What a key's number means is the process's business. */
  __u64 whose = wl_mix(trail->process.epoch, s->event.head.tgid);
  l->event.head.labels = wl_mix(l->hash, whose) | 1;
  if (wl_send_labels(s)) return 1;
  s->event.head.labels = l->event.head.labels;
  s->unwind.hash = wl_mix(s->unwind.hash, l->event.head.labels);
  return 0;
}

#endif
