/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Waiting: the time between a thread's leaving a CPU and its coming back, with the stack that it left with. The stack
 * is walked when the thread leaves: it is the running one then, so that its memory can be read. The time is booked when
 * it comes back, or by the agent if it does not before the recording ends.
 *
 * Threads that wait already when the recording begins are found by a pass over all of them. Nobody can read their
 * memory there, so the agent gets their registers and their kernel stack, and reads the rest.
 */
#ifndef WINDLASS_WAIT_BPF_H
#define WINDLASS_WAIT_BPF_H

WL_INLINE void wl_book_wait(struct wl_cpu_stats* st, struct wl_wait* wait, __u64 waited) {
  __u64 since = wait->since;
  wait->since = 0;
  if (waited < wl_shortest_wait) {
    st->short_waits++;
    return;
  }
  st->waits++;
  wl_tell_time(st, &wait->key, wl_wait_event, since, waited, 0);
  struct wl_count* count = bpf_map_lookup_elem(&counts, &wait->key);
  if (count) {
    __sync_fetch_and_add(&count->count, 1);
    __sync_fetch_and_add(&count->value, waited);
    return;
  }
  /* The agent has taken the counts meanwhile, and knows the stacks of those that wait. */
  struct wl_count first = {.count = 1, .value = waited};
  if (bpf_map_update_elem(&counts, &wait->key, &first, BPF_ANY)) st->lost_waits++;
}

/* Of a thread that is about to run. */
WL_INLINE void wl_end_wait(struct wl_cpu_stats* st, struct task_struct* task, __u64 now) {
  __u32 thread = BPF_CORE_READ(task, pid);
  struct wl_wait* wait = bpf_map_lookup_elem(&waits, &thread);
  if (wait && wait->since) wl_book_wait(st, wait, now - wait->since);
}

/* Of the running thread, if it came to the CPU unseen. Some kernels do not tell of every switch. The wait before then
 * lasted for all the time that the thread did not run. */
WL_INLINE void wl_end_unseen(struct wl_cpu_stats* st, struct wl_wait* wait, __u64 ran, __u64 now) {
  __u64 passed = now - wait->since, ran_for = ran - wait->ran;
  if (wait->since && ran_for < passed) wl_book_wait(st, wait, passed - ran_for);
  wait->since = 0;
}

WL_INLINE void wl_begin_wait(struct wl_cpu_stats* st, struct task_struct* task, const struct wl_wait* begun) {
  __u32 thread = task->pid;
  struct wl_wait* wait = bpf_map_lookup_elem(&waits, &thread);
  if (wait) {
    wl_end_unseen(st, wait, begun->ran, begun->since);
    *wait = *begun;
    return;
  }
  if (bpf_map_update_elem(&waits, &thread, begun, BPF_ANY)) st->lost_waits++;
}

/* Of the running thread, whose next wait is not wanted. */
WL_INLINE void wl_begin_other_wait(struct wl_cpu_stats* st, struct task_struct* task, __u64 now) {
  __u32 thread = task->pid;
  struct wl_wait* wait = bpf_map_lookup_elem(&waits, &thread);
  if (wait) wl_end_unseen(st, wait, task->se.sum_exec_runtime, now);
}

WL_INLINE void wl_end_thread(struct wl_cpu_stats* st, struct task_struct* task, __u64 now) {
  __u32 thread = task->pid;
  struct wl_wait* wait = bpf_map_lookup_elem(&waits, &thread);
  if (!wait) return;
  wl_end_unseen(st, wait, task->se.sum_exec_runtime, now);
  bpf_map_delete_elem(&waits, &thread);
}

/* What a thread that leaves its CPU, or has left it, waits for. */
WL_INLINE __u16 wl_reason_of(struct task_struct* task, int preempted) {
  __u32 state = task->__state;
  if (preempted || !state) return WL_WAIT_PREEMPTED;
  if (state & TASK_STOPPED_BITS) return WL_WAIT_STOPPED;
  const struct pt_regs___kernel* regs = (const struct pt_regs___kernel*)bpf_task_pt_regs(task);
  if (BPF_CORE_READ_BITFIELD(task, in_iowait)) return WL_WAIT_IO;
  int call = WL_TASK_SYSCALL(regs);
  if (call < 0) return WL_WAIT_FAULT;
  return wl_is_compat(regs) || call >= 0xf000 ? WL_WAIT_OTHER : WL_WAIT_SYSCALL + call;
}

/* The locks of processes are futexes. For most of the kernel's own, a thread waits as no signal can end. */
WL_INLINE int wl_may_be_lock(struct task_struct* task, __u16 reason) {
  if (reason == WL_WAIT_SYSCALL + WL_CALL_FUTEX) return 1;
  if (reason == WL_WAIT_IO || reason == WL_WAIT_PREEMPTED || reason == WL_WAIT_STOPPED) return 0;
  return (task->__state & TASK_UNINTERRUPTIBLE) != 0;
}

/* 1 if this CPU has walked as much in this window of time as it may. */
WL_INLINE int wl_has_walked_enough(struct wl_scratch* s, __u64 now) {
  __u64 window = now >> WL_RAW_WINDOW_SHIFT;
  if (s->walk_window != window) {
    s->walk_window = window;
    s->walks = 0;
  }
  return s->walks++ >= wl_walks_per_window;
}

/* The stack that the running thread leaves with, or wakes another one with. Its key goes to `key`. */
WL_INLINE void wl_take_wait(void* ctx, struct wl_sample* sample, __u64 now, struct wl_stack_key* key) {
  struct wl_scratch* s = sample->s;
  if (s->late || wl_has_walked_enough(s, now)) {
    s->unwind.end = WL_END_NO_TIME;
    wl_emit_stack(s, sample->st, sample->trail);
  } else {
    wl_add_kernel_stack(s, bpf_get_stack(ctx, s->frames, WL_MAX_KERNEL_FRAMES * 8, 0));
    if (s->event.head.tid) {
      wl_finish_sample(sample);
    } else {
      s->unwind.end = WL_END_KERNEL_ONLY;
      wl_emit_stack(s, sample->st, sample->trail);
    }
  }
  *key = s->key;
  wl_give_back(s);
}

SEC("raw_tp/sched_switch")
int BPF_PROG(windlass_switch, int preempt, struct task_struct* previous, struct task_struct* next) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wl_cpu_stats* st = bpf_map_lookup_elem(&stats, &cpu);
  if (!st) return 0;
  __u64 now = bpf_ktime_get_ns();
  wl_end_wait(st, next, now);
  struct task_struct* task = bpf_get_current_task_btf();
  if (task->__state & TASK_DEAD) {
    wl_end_thread(st, task, now);
    return 0;
  }
  if (wl_works_for_kernel(task)) return 0;
  __u16 reason = wl_reason_of(task, preempt);
  struct wl_wait wait = {.since = now, .ran = task->se.sum_exec_runtime, .may_be_lock = wl_may_be_lock(task, reason)};
  struct wl_sample sample;
  if (wl_locks_only && !wait.may_be_lock) {
    wl_begin_other_wait(st, task, now);
    return 0;
  }
  if (!wl_begin_sample(&sample, wl_wait_event)) return 0;
  sample.s->event.head.reason = reason;
  sample.s->repeats = 0;
  wl_take_wait(ctx, &sample, now, &wait.key);
  wl_begin_wait(st, task, &wait);
  return 0;
}

/* Room for the kernel's stack behind the event. */
#define WL_RESTING_BYTES (sizeof(struct wl_raw_event) + WL_MAX_KERNEL_FRAMES * 8)

/* The event of a thread that waits. It has neither stack nor code. */
WL_INLINE void wl_describe_resting(struct wl_raw_event* event, struct task_struct* task, const struct wl_wait* wait) {
  const struct pt_regs___kernel* regs = (const struct pt_regs___kernel*)bpf_task_pt_regs(task);
  __builtin_memset(event, 0, sizeof *event);
  event->head.type = WL_EVENT_RAW;
  event->head.event = wl_wait_event;
  event->head.reason = wl_reason_of(task, 0);
  event->head.time = wait->since;
  event->head.tgid = wait->key.tgid;
  event->head.tid = wait->key.tid;
  bpf_probe_read_kernel(event->head.comm, sizeof event->head.comm, task->comm);
  event->hash = wait->key.hash;
  struct wl_cursor cursor;
  wl_load_registers(&cursor, regs);
  __builtin_memcpy(event->regs, cursor.regs, sizeof cursor.regs);
  event->reason = WL_END_NO_PROCESS;
  event->machine = WL_MACHINE;
  event->stack_address = cursor.regs[WL_SP] - WL_RED_ZONE;
  event->thread_pointer = wl_thread_block(task);
#ifdef WL_COMPAT_MACHINE
  if (wl_is_compat(regs)) {
    event->machine = WL_COMPAT_MACHINE;
    event->thread_pointer = wl_compat_thread_block(task);
  }
#endif
  event->gs_base = wl_gs_base(task);
}

SEC("iter/task")
int windlass_resting(struct bpf_iter__task* ctx) {
  struct task_struct* task = ctx->task;
  if (!task || wl_works_for_kernel(task) || !task->mm || task->on_cpu) return 0;
  __u32 thread = task->pid;
  struct wl_wait wait = {.since = bpf_ktime_get_ns(),
                         .ran = task->se.sum_exec_runtime,
                         .key = {.tgid = wl_task_tgid(task), .tid = wl_task_tid(task)},
                         .may_be_lock = wl_may_be_lock(task, wl_reason_of(task, 0))};
  if (wl_locks_only && !wait.may_be_lock) return 0;
  wait.key.hash = wl_mix(wait.since, thread);
  if (!wait.key.tgid || !wl_is_sampled(wait.key.tgid)) return 0;
  __u64 address = 0; /* as a number, which functions of their own take */
  bpf_probe_read_kernel(&address, sizeof address, &ctx->task);
  if (wl_filters.used && !wl_passes_filters(address)) return 0;
  if (bpf_map_update_elem(&waits, &thread, &wait, BPF_NOEXIST)) return 0; /* it ran meanwhile */
  __u32 cpu = bpf_get_smp_processor_id();
  struct wl_cpu_stats* st = bpf_map_lookup_elem(&stats, &cpu);
  struct wl_raw_event* event = bpf_ringbuf_reserve(&events, WL_RESTING_BYTES, 0);
  if (!event) {
    if (st) __sync_fetch_and_add(&st->lost_waits, 1);
    return 0;
  }
  wl_describe_resting(event, task, &wait);
  long bytes = bpf_get_task_stack(task, event + 1, WL_MAX_KERNEL_FRAMES * 8, 0);
  event->kernel_frames = bytes > 0 ? (__u32)bytes / 8 : 0;
  bpf_ringbuf_submit(event, 0);
  return 0;
}

#endif
