/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * What every event of a sample needs: its head, and when it wakes the agent.
 */
#ifndef WINDLASS_EVENT_BPF_H
#define WINDLASS_EVENT_BPF_H

#include "windlass_bpf_access.h"
#include "windlass_options.bpf.h"

/* What a sample that is only counted can do without. */
WL_INLINE void wl_stamp(struct wl_event_head* head) {
  head->time = bpf_ktime_get_ns();
  bpf_get_current_comm(head->comm, sizeof head->comm);
}

/* Waking the agent costs an interrupt, several microseconds in a virtual machine. It looks into the ring several times
 * a second by itself; samples wake it only when the ring fills. */
WL_INLINE __u64 wl_wakeup(void) {
  return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > wl_wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* What the sample counts for. */
WL_INLINE __u64 wl_ticks_of(const struct wl_scratch* s) { return 1ull + s->event.head.extra; }

/* When a sample was taken, or a wait began, that is counted under the key. */
WL_INLINE void wl_tell_time(struct wl_cpu_stats* st, const struct wl_stack_key* key, __u16 event, __u64 time,
                            __u64 lasted, __u8 extra) {
  if (!wl_timeline) return;
  struct wl_time_event* told = bpf_ringbuf_reserve(&events, sizeof *told, 0);
  if (!told) {
    st->lost_times++;
    return;
  }
  told->head.type = WL_EVENT_TIME;
  told->head.extra = extra;
  told->head.event = event;
  told->head.reason = 0;
  told->head.cpu = 0;
  told->head.time = time;
  told->head.tgid = key->tgid;
  told->head.tid = key->tid;
  told->hash = key->hash;
  told->lasted = lasted;
  bpf_ringbuf_submit(told, wl_wakeup());
}

#endif
