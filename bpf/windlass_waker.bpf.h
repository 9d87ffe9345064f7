/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Who ends a wait. The tracepoint sched_waking runs in the thread that wakes another one, so that its stack can be
 * walked as that of a sample. From then on the wait is counted under a key of both stacks, which the agent joins.
 */
#ifndef WINDLASS_WAKER_BPF_H
#define WINDLASS_WAKER_BPF_H

/* Who wakes. */
struct wl_waker {
  __u64 comm[WL_COMM / 8]; /* Zeroes if the CPU was idle, so that an interrupt wakes. */
  struct wl_stack_key key;
};

/* The stack of the running thread. If that is not recorded the kernel's part alone: an interrupt is told by it. */
WL_INLINE void wl_take_waker(void* ctx, struct wl_waker* waker, __u64 now) {
  if (bpf_get_current_task_btf()->pid) bpf_get_current_comm(waker->comm, sizeof waker->comm);
  struct wl_sample sample;
  if (!wl_begin_sample_of(&sample, wl_wait_event, 1, 0)) return;
  sample.s->event.head.reason = WL_WAIT_ENDED;
  sample.s->repeats = 0;
  wl_take_wait(ctx, &sample, now, &waker->key);
}

/* The wait has this waker. The agent hears of each two stacks once. */
WL_INLINE void wl_join_waker(struct wl_wait* wait, const struct wl_waker* waker, __u64 now) {
  struct wl_stack_key key = wait->key;
  key.hash = wl_mix(wl_mix(wl_mix(key.hash, waker->key.hash), waker->comm[0]), waker->comm[1]);
  struct wl_count* known = bpf_map_lookup_elem(&counts, &key);
  if (!known || !known->told) {
    struct wl_waker_event* event = bpf_ringbuf_reserve(&events, sizeof *event, 0);
    if (!event) return;
    __builtin_memset(&event->head, 0, sizeof event->head);
    event->head.type = WL_EVENT_WAKER;
    event->head.event = wl_wait_event;
    event->head.time = now;
    event->head.tgid = key.tgid;
    event->head.tid = key.tid;
    __builtin_memcpy(event->head.comm, waker->comm, sizeof event->head.comm);
    event->hash = key.hash;
    event->wait_hash = wait->key.hash;
    event->waker = waker->key;
    bpf_ringbuf_submit(event, wl_wakeup());
    if (known)
      known->told = 1;
    else
      wl_begin_count(&key);
  }
  wait->key = key;
}

SEC("raw_tp/sched_waking")
int BPF_PROG(windlass_waking, struct task_struct* woken) {
  __u32 thread = BPF_CORE_READ(woken, pid);
  struct wl_wait* wait = bpf_map_lookup_elem(&waits, &thread);
  if (!wait) return 0;
  __u64 since = wait->since; /* read ahead of the time, which is later then */
  if (!since) return 0;
  if (wl_walked_wakers == WL_WAKERS_OF_LOCKS && !wait->may_be_lock) return 0;
  __u64 now = bpf_ktime_get_ns();
  if (now < since || now - since < wl_shortest_wait) return 0;
  struct wl_waker waker = {};
  wl_take_waker(ctx, &waker, now);
  wl_join_waker(wait, &waker, bpf_ktime_get_ns());
  return 0;
}

#endif
