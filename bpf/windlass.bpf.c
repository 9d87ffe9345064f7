/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The sampler: a perf_event program that unwinds the kernel stack and the user stack of the running thread, without
 * tail calls and bpf_loop. Every sample ends in exactly one way: counted (a stack seen before), a stack event, a raw
 * event, or lost.
 *
 * The verifiers of 2022's kernels and older accept less than today's: 512 bytes of stack over all frames, a million
 * instructions, values followed each by itself. So the work is split into global functions, each verified once and
 * alone. Their data is in maps (windlass_unwind.h).
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "vmlinux_min.h"
#include "windlass_bpf_env.h"

#include "windlass_bpf_access.h"

#include "windlass_interpreter.h"
#include "windlass_walk.h"

#include "windlass_condition.bpf.h"
#include "windlass_event.bpf.h"
#include "windlass_filter.bpf.h"
#include "windlass_ids.bpf.h"
#include "windlass_labels.bpf.h"
#include "windlass_machine.bpf.h"
#include "windlass_options.bpf.h"
#include "windlass_process.bpf.h"
#include "windlass_raw.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* By the agent: the clock's rate is halved so often. */
__u32 wl_wanted_halvings = 0;

/* The way to other stacks of the last table that was loaded and has one. */
struct wl_way wl_go_way = {0};

/* Some of the kernel's frames into the hash, from that of the number on. 1 if these were the last. The verifier goes
 * through every round of a loop, so two short loops stand for a long one. */
#define WL_KERNEL_FRAMES_A_CALL 16u
WL_GLOBAL int wl_hash_kernel_frames(struct wl_scratch* s, __u32 number) {
  if (!s) return 1;
  __u64 hash = s->unwind.hash;
  __u32 i, left = s->unwind.first - number;
  for (i = 0; i < WL_KERNEL_FRAMES_A_CALL; i++) {
    if (i >= left) break;
    hash = wl_mix(hash, s->frames[(number + i) & (WL_FRAME_SLOTS - 1)]);
  }
  s->unwind.hash = hash;
  return i == left;
}

/* The kernel's stack in s->frames, of so many bytes, into the hash. */
WL_GLOBAL int wl_add_kernel_stack(struct wl_scratch* s, long bytes) {
  if (!s) return 1;
  __u32 n = bytes > 0 ? (__u32)bytes / 8 : 0;
  if (n > wl_max_kernel_frames) n = wl_max_kernel_frames;
  s->unwind.first = n;
  s->event.kernel_frames = n;
  for (__u32 number = 0; number < WL_MAX_KERNEL_FRAMES; number += WL_KERNEL_FRAMES_A_CALL) {
    if (wl_hash_kernel_frames(s, number)) break;
  }
  return 0;
}

/* The kernel's stack, if the sample is of the kernel, into s->frames and the hash. */
WL_GLOBAL int wl_take_kernel_stack(struct bpf_perf_event_data* ctx, struct wl_scratch* s) {
  if (!s || s->late || (__s64)WL_CONTEXT_PC(ctx->regs) >= 0) return 0;
  return wl_add_kernel_stack(s, bpf_get_stack(ctx, s->frames, WL_MAX_KERNEL_FRAMES * 8, 0));
}

/* The words that the sample takes along, behind its frames; none if these leave no room. */
WL_GLOBAL int wl_append_taken(struct wl_scratch* s) {
  if (!s) return 1;
  s->event.taken_words = 0;
  struct wl_unwind* u = &s->unwind;
  __u32 from = u->first + u->frames + 2 * u->interpreted.count, size = (__u32)s->taken_words * 8;
  if (size == 0) return 0;
  WL_OPAQUE(size);
  WL_OPAQUE(from);
  if (size > sizeof s->taken || from > WL_FRAME_SLOTS - WL_MAX_TAKEN_WORDS) return 1;
  bpf_probe_read_kernel(&s->frames[from], size, s->taken);
  s->event.taken_words = (__u32)s->taken_words;
  return 0;
}

/* Repeats of the stack are counted from now on. */
WL_INLINE void wl_begin_count(const struct wl_stack_key* key) {
  struct wl_count none = {.told = 1};
  bpf_map_update_elem(&counts, key, &none, BPF_NOEXIST);
}

/* Emits the stack in scratch, or counts it if it was seen before. */
WL_GLOBAL int wl_emit_stack(struct wl_scratch* s, struct wl_cpu_stats* st, struct wl_trail* trail) {
  if (!s || !st || !trail) return 1;
  struct wl_unwind* u = &s->unwind;
  __u32 end = u->end < WL_END_COUNT ? u->end : WL_END_INTERNAL;
  __u32 certainty = u->certainty & 3;
  st->ends[end] += wl_ticks_of(s);
  st->user_frames += u->frames;
  st->memo_hits += u->memo_hits;
  st->followed_frames += s->trail.followed;
  if (u->managed_frames) st->managed_stacks++;
  if (u->learned_frames) st->learned_stacks++;
  if (u->learned_frames) u->hash = wl_mix(u->hash, bpf_ktime_get_ns() >> WL_LEARNED_WINDOW_SHIFT);
  u->hash = wl_mix(u->hash, u->sum.value);
  __u32 kind = (__u32)s->event.head.event << 16 | s->event.head.reason;
  if (kind) u->hash = wl_mix(u->hash, kind);
  /* No mapping set tells the program from the one before it in this process, or in another of its number. */
  __u32 tgid = s->event.head.tgid;
  __u64* epoch = u->space ? 0 : bpf_map_lookup_elem(&epochs, &tgid);
  if (epoch) u->hash = wl_mix(u->hash, *epoch);
  struct wl_stack_key key = {
      .hash = wl_mix(u->hash, ((__u64)u->space << 32) | (u->first << 8) | (certainty << 6) | end),
      .tgid = s->event.head.tgid,
      .tid = s->event.head.tid,
  };
  s->key = key;
  struct wl_count* known = bpf_map_lookup_elem(&counts, &key);
  if (known && known->told) {
    if (s->repeats) {
      __sync_fetch_and_add(&known->count, wl_ticks_of(s));
      wl_tell_time(st, &key, s->event.head.event, bpf_ktime_get_ns(), 0, s->event.head.extra);
    }
    st->counted += wl_ticks_of(s);
    return 0;
  }
  wl_stamp(&s->event.head);
  s->event.head.type = WL_EVENT_STACK;
  s->event.hash = key.hash;
  s->event.space = u->space;
  s->event.epoch = u->epoch;
  s->event.end = end;
  s->event.certainty = certainty;
  s->event.user_frames = u->frames;
  s->event.interpreted_frames = u->interpreted.count;
  if (s->trail.followed) wl_take_followed(s, trail);
  wl_append_taken(s);
  __u64 size = sizeof s->event + (u->frames + u->first + 2 * u->interpreted.count + s->event.taken_words) * 8;
  if (size > sizeof s->event + sizeof s->frames) return 1;
  if (bpf_ringbuf_output(&events, &s->event, size, wl_wakeup())) {
    st->lost += wl_ticks_of(s);
    return 0;
  }
  st->stack_events += wl_ticks_of(s);
  if (known)
    known->told = 1;
  else
    wl_begin_count(&key);
  return 0;
}

/* Does the trail have the process of the current thread? */
WL_INLINE int wl_has_process(const struct wl_trail* trail, __u32 tgid, __u32 tid) {
  return trail->tgid == tgid && trail->tid == tid && trail->changes == wl_process_changes;
}

/* Puts what the maps say of the process into the trail: 0 if no mapping set is known, or only one from before an exec
 * or an unmapping. */
WL_GLOBAL int wl_look_up_process(struct wl_trail* trail, __u32 tgid, __u32 tid) {
  if (!trail) return 0;
  trail->tgid = 0;
  if (trail->tid != tid) trail->count = 0;
  trail->tid = tid;
  trail->changes = wl_process_changes;
  const struct wl_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process) return 0;
  const __u64* epoch = bpf_map_lookup_elem(&epochs, &tgid);
  if (process->epoch != (epoch ? *epoch : 0)) return 0;
  trail->process = *process;
  if (trail->changes == *(volatile __u64*)&wl_process_changes) trail->tgid = tgid;
  return 1;
}

/* Puts the mapping set to unwind with into u. 0 if none is known. */
WL_GLOBAL int wl_use_process(struct wl_unwind* u, struct wl_trail* trail, __u32 tgid, __u32 tid) {
  if (!u || !trail) return 0;
  if (!wl_has_process(trail, tgid, tid) && !wl_look_up_process(trail, tgid, tid)) return 0;
  const struct wl_process* process = &trail->process;
  const unsigned char* chunk = wl_chunk(&u->env, process->maps);
  if (!chunk) return 0;
  __u32 at = wl_offset(process->maps - (sizeof(struct wl_maps_head) >> WL_REF_SHIFT));
  if (((const struct wl_maps_head*)(chunk + at))->space != process->space) return 0;
  u->space = process->space;
  u->epoch = process->epoch;
  u->tgid = tgid;
  u->maps = process->maps;
  u->map_count = process->map_count;
  u->has_interpreter = process->flags & WL_PROCESS_INTERPRETED;
  return 1;
}

/* What the process's interpreter runs in the thread. */
WL_GLOBAL int wl_take_interpreted_stack(struct wl_scratch* s) {
  if (!s) return 1;
  struct wl_unwind* u = &s->unwind;
  __u32 ref = u->maps + u->map_count * (sizeof(struct wl_mapping) >> WL_REF_SHIFT);
  const unsigned char* chunk = wl_chunk(&u->env, ref);
  __u32 at = wl_offset(ref);
  if (!chunk || at > WL_CHUNK_SIZE - sizeof(struct wl_interpreter)) return 1;
  __builtin_memcpy(&u->interpreted.layout, chunk + at, sizeof(struct wl_interpreter));
  return wl_take_interpreted(s);
}

WL_INLINE int wl_wants_raw(__u32 end) {
  return end == WL_END_NO_PROCESS || end == WL_END_NO_MAPPING || end == WL_END_PENDING || end == WL_END_NO_ROW ||
         end == WL_END_UNSUPPORTED_EXPRESSION || end == WL_END_REGISTER_LOST || end == WL_END_BAD_FRAME_POINTER ||
         end == WL_END_GUESSED;
}

WL_GLOBAL int wl_begin_walk(struct wl_unwind* u) {
  if (!u) return 1;
  u->hash = 0x57494e444c415353ull;
  u->sum.value = 0;
  u->sum.power = 1;
  u->space = 0;
  u->epoch = 0;
  u->first = 0;
  u->frames = 0;
  u->frame_limit = wl_max_user_frames;
  u->memo_hits = 0;
  u->managed_frames = 0;
  u->learned_frames = 0;
  u->taken_count = 0;
  u->table.address = 0;
  u->has_interpreter = 0;
  u->interpreted.count = 0;
  u->end = WL_END_INTERNAL;
  u->certainty = WL_DESCRIBED;
  u->next_stack = 0;
  u->other_stack.there = 0;
  u->held.there = 0;
  wl_forget_words(u, 0, WL_WORDS);
  u->kept_sp = 0;
  u->kept_end = u->left_at = ~0ull;
  u->thread_pointer = 0;
  u->gs_base = 0;
  u->env.window.base = 0;
  u->env.window.size = 0;
  u->env.window.served = WL_WINDOW_SERVED;
  u->env.window.wanted = WL_WINDOW_SERVED;
  return 0;
}

/* The cursor at the innermost frame. */
WL_INLINE void wl_first_frame(struct wl_scratch* s, const struct pt_regs___kernel* regs) {
  wl_load_registers(&s->unwind.cursor, regs);
  if (s->event.kernel_frames) wl_settle(&s->unwind);
}

/* The frame at hand and no more. */
WL_INLINE void wl_take_leaf(struct wl_scratch* s, __u64 pc) {
  struct wl_unwind* u = &s->unwind;
  __u64 frame = pc | WL_FRAME_EXACT;
  s->frames[u->first & (WL_FRAME_SLOTS - 1)] = frame;
  wl_add_frame(&u->sum, frame);
  u->frames = 1;
}

/* 32-bit code, which the agent alone can unwind. 1 if the sample went there; 0 with its leaf. */
WL_INLINE int wl_take_compat_stack(struct wl_scratch* s, struct wl_cpu_stats* st, struct task_struct* task,
                                   const struct pt_regs___kernel* regs) {
  struct wl_unwind* u = &s->unwind;
  u->end = WL_END_OTHER_MACHINE;
#ifdef WL_COMPAT_MACHINE
  s->machine = WL_COMPAT_MACHINE;
  s->thread_block = wl_compat_thread_block(task);
  wl_load_registers(&u->cursor, regs);
  if (wl_emit_raw(s, st, 0)) {
    st->ends[WL_END_OTHER_MACHINE] += wl_ticks_of(s);
    return 1;
  }
#endif
  wl_take_leaf(s, WL_TASK_PC(regs));
  return 0;
}

/* Threads of a process that run in the kernel alone: their user registers are zeroes. */
WL_INLINE int wl_works_for_kernel(const struct task_struct* task) {
  __u32 flags = PF_KTHREAD | PF_IO_WORKER;
  if (bpf_core_field_exists(((struct kernel_clone_args*)0)->user_worker)) flags |= PF_USER_WORKER;
  return (task->flags & flags) != 0;
}

/* Where the stack of the running process began, into s. 0: it has no memory. A function of its own, which is verified
 * once: at each load of a pointer from the kernel's structs, newer verifiers search all types of the kernel by name. */
WL_GLOBAL int wl_find_stack_top(struct wl_scratch* s) {
  if (!s) return 0;
  const struct mm_struct* mm = bpf_get_current_task_btf()->mm;
  if (!mm) return 0;
  s->stack_top = mm->start_stack;
  return 1;
}

/* The user stack, which is left to the agent without `walks`. 1 if the sample went to the agent with its raw stack. */
WL_INLINE int wl_take_user_stack(struct wl_scratch* s, struct wl_cpu_stats* st, struct wl_trail* trail,
                                 struct task_struct* task, int walks) {
  struct wl_unwind* u = &s->unwind;
  struct pt_regs___kernel* regs = (struct pt_regs___kernel*)bpf_task_pt_regs(task);
  if (wl_works_for_kernel(task) || !wl_find_stack_top(s) || BPF_CORE_READ_BITFIELD(task, in_execve)) {
    /* no user stack: none of its own, or taken down already (exit), or half built */
    u->end = s->late ? WL_END_NO_TIME : WL_END_KERNEL_ONLY;
    return 0;
  }
  if (s->late) {
    u->end = WL_END_NO_TIME;
    wl_take_leaf(s, WL_TASK_PC(regs));
    return 0;
  }
  if (wl_is_compat(regs)) return wl_take_compat_stack(s, st, task, regs);
  wl_first_frame(s, regs);
  u->interpreted.sp = u->cursor.regs[WL_SP];
  u->thread_pointer = wl_thread_block(task);
  u->gs_base = wl_gs_base(task);
  u->end = WL_END_NO_PROCESS;
  if (wl_use_process(u, trail, s->event.head.tgid, s->event.head.tid)) {
    if (trail->process.labels.kind) wl_take_labels(s, trail);
    if (trail->process.thread_slot) wl_use_thread_slot(u, trail->process.thread_slot);
    __u32 cpu = s->event.head.cpu;
    struct wl_memo* m = walks ? bpf_map_lookup_elem(&memo, &cpu) : 0;
    if (m) wl_walk(s, m, trail);
    if (u->has_interpreter) wl_take_interpreted_stack(s);
  }
  /* A thread that begins has nothing on its stack, and the agent knows it by its code. */
  int has_begun = u->end == WL_END_UNREADABLE_STACK && u->frames <= 1;
  if (!wl_wants_raw(u->end) && !has_begun) return 0;
  __u64 stop = u->frames ? u->cursor.regs[WL_SP] : 0;
  if (u->other_stack.there) stop = wl_other_sp(u, stop);
  if (u->held.there) wl_read_held(u);
  if (u->next_stack) stop = u->next_stack - WL_RED_ZONE;
  wl_first_frame(s, regs);
  if (!u->other_stack.there && !u->next_stack) stop = wl_any_go_sp(u, &wl_go_way, stop);
#ifndef WL_TARGET_A64
  if (u->gs_base) stop = wl_windows_sp(u, stop);
#endif
  s->machine = WL_MACHINE;
  s->thread_block = wl_thread_block(task);
  u->env.next_return = 0;
  __u64 real = wl_probed_pc(&u->env, &u->cursor);
  if (real) u->cursor.regs[WL_PC] = real;
  if (!wl_emit_raw(s, st, stop)) return 0;
  st->ends[u->end < WL_END_COUNT ? u->end : WL_END_INTERNAL] += wl_ticks_of(s);
  return 1;
}

/* What a sample is taken with. */
struct wl_sample {
  struct wl_scratch* s;
  struct wl_cpu_stats* st;
  struct wl_trail* trail;
};

/* The program may be interrupted by others that take samples: those of probes in processes can be, the processor's
 * counters interrupt all, and a tracepoint may lie in what the program of waits does. */
WL_INLINE int wl_is_taken(struct wl_scratch* s, struct wl_cpu_stats* st, __u8 extra) {
  if (!wl_can_be_interrupted || !__sync_lock_test_and_set(&s->busy, 1)) return 0;
  st->lost += 1ull + extra;
  st->ends[WL_END_NO_TIME] += 1ull + extra;
  return 1;
}

/* The clock ticks on while a sample is taken. Where a walk takes longer than a tick (an emulated machine, or a virtual
 * one that gets little of its host's time), the next sample is due when the walk ends, and the CPU would do nothing but
 * sample. So walks have a share of each window of time, and the samples behind that have none. */
WL_INLINE void wl_begin_work(struct wl_scratch* s) {
  s->begun = bpf_ktime_get_ns();
  __u64 window = s->begun >> WL_RAW_WINDOW_SHIFT;
  if (s->work_window != window) {
    s->work_window = window;
    s->worked = 0;
  }
  s->late = s->worked >= wl_work_per_window;
}

WL_INLINE void wl_give_back(struct wl_scratch* s) {
  if (s->begun) s->worked += bpf_ktime_get_ns() - s->begun;
  if (wl_can_be_interrupted) s->busy = 0;
}

/* A probe in a process's code needs no bound: the next sample is due when the process comes there again. */
WL_INLINE void wl_lift_bound(struct wl_scratch* s) { s->begun = s->late = 0; }

/* Is the running thread recorded? */
WL_INLINE int wl_is_recorded(const struct wl_trail* trail, __u64 ids) {
  __u32 tgid = ids >> 32;
  if ((__u32)ids == 0) return 0;
  return wl_has_process(trail, tgid, (__u32)ids) || wl_is_sampled(tgid); /* only targets are kept */
}

/* Begins a sample of the running thread. 0 if it is not wanted, or cannot be. `all`: threads that are not recorded are
 * wanted, too, under the number 0. `extra`: as in the event's head. */
WL_INLINE int wl_begin_sample_of(struct wl_sample* sample, __u32 event, int all, __u8 extra) {
  __u32 key = bpf_get_smp_processor_id();
  struct wl_cpu_stats* st = bpf_map_lookup_elem(&stats, &key);
  if (!st) return 0;
  st->samples += 1ull + extra;
  /* First, as most threads fail: nothing else is touched. */
  int passes = !wl_filters.used || wl_current_passes_filters();
  if (!passes && !all) {
    st->idle += 1ull + extra;
    return 0;
  }
  struct wl_scratch* s = bpf_map_lookup_elem(&scratch, &key);
  struct wl_trails* t = bpf_map_lookup_elem(&trails, &key);
  if (!s || !t) return 0;
  __u64 ids = wl_current_ids();
  struct wl_trail* trail = &t->of[(__u32)ids & (WL_TRAILS - 1)];
  __u32 cpu = key;
  if (!passes || !wl_is_recorded(trail, ids)) {
    ids = 0;
    if (!all) {
      st->idle += 1ull + extra;
      return 0;
    }
  }
  st->left_out += extra;
  if (wl_is_taken(s, st, extra)) return 0;
  wl_begin_work(s);
  s->event.head.cpu = cpu;
  s->event.head.event = event;
  s->event.head.extra = extra;
  s->event.head.reason = 0;
  s->event.head.tgid = ids >> 32;
  s->event.head.tid = (__u32)ids;
  s->event.head.labels = 0;
  s->event.kernel_frames = 0;
  s->repeats = 1;
  s->taken_words = 0;
  s->trail.followed = 0;
  wl_begin_walk(&s->unwind);
  sample->s = s;
  sample->st = st;
  sample->trail = trail;
  return 1;
}

WL_INLINE int wl_begin_sample(struct wl_sample* sample, __u32 event) { return wl_begin_sample_of(sample, event, 0, 0); }

/* Takes the user stack behind the kernel's, and hands out the sample. */
WL_INLINE void wl_hand_out(struct wl_sample* sample, int walks) {
  struct wl_scratch* s = sample->s;
  if (!wl_take_user_stack(s, sample->st, sample->trail, bpf_get_current_task_btf(), walks))
    wl_emit_stack(s, sample->st, sample->trail);
}

WL_INLINE void wl_finish_sample(struct wl_sample* sample) { wl_hand_out(sample, 1); }

/* How often the rate is to be halved: as the agent wants it, and as the ring is filling. The agent may get no CPU time
 * to want anything. So the kernel side begins by itself where half of the ring is full. The last eighth lasts 32 times
 * as long as at the full rate, and 128 times behind its middle. */
WL_INLINE __u32 wl_halvings_now(void) {
  __u64 used = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA), sixteenth = wl_wakeup_bytes / 2;
  __u32 halvings = used < 8 * sixteenth    ? 0
                   : used < 10 * sixteenth ? 1
                   : used < 12 * sixteenth ? 2
                   : used < 14 * sixteenth ? 3
                   : used < 15 * sixteenth ? 5
                                           : WL_MOST_HALVINGS;
  __u32 wanted = *(volatile __u32*)&wl_wanted_halvings;
  if (halvings < wanted) halvings = wanted;
  return halvings < wl_most_halvings ? halvings : wl_most_halvings;
}

/* A tick of the clock: those that it stands for besides itself, or -1 if it is left out itself. The sum over all that
 * are not is the number of ticks, whatever the rate was. */
WL_INLINE int wl_thin_out(void) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wl_cpu_stats* st = bpf_map_lookup_elem(&stats, &cpu);
  if (!st) return 0;
  __u32 halvings = wl_halvings_now() & 7, skipped = st->skipped & ((1u << WL_MOST_HALVINGS) - 1);
  if (halvings > st->halvings) st->halvings = halvings;
  if (skipped + 1 < 1u << halvings) {
    st->skipped = skipped + 1;
    return -1;
  }
  st->skipped = 0;
  return skipped;
}

/* Of a counter of perf: a tick of CPU time, a page fault. */
WL_INLINE int wl_take_tick(struct bpf_perf_event_data* ctx, int walks) {
  struct wl_sample sample;
  __u32 event = wl_has_counters ? bpf_get_attach_cookie(ctx) : wl_clock_event;
  int extra = wl_most_halvings && event == wl_clock_event ? wl_thin_out() : 0;
  if (extra < 0 || !wl_begin_sample_of(&sample, event, 0, extra)) return 0;
  wl_take_kernel_stack(ctx, sample.s);
  wl_hand_out(&sample, walks);
  wl_give_back(sample.s);
  return 0;
}

SEC("perf_event")
int windlass_sample(struct bpf_perf_event_data* ctx) { return wl_take_tick(ctx, 1); }

/* Stands in for the sampler while that is verified, which takes longer: leaves all stacks to the agent. */
SEC("perf_event")
int windlass_first_samples(struct bpf_perf_event_data* ctx) {
  bpf_tail_call(ctx, &sampler, 0);
  return wl_take_tick(ctx, 0);
}

SEC("tracepoint")
int windlass_tracepoint(void* ctx) {
  struct wl_sample sample;
  __u32 event = bpf_get_attach_cookie(ctx);
  if (!wl_meets_conditions(ctx, event) || !wl_begin_sample(&sample, event)) return 0;
  if (!sample.s->late) wl_add_kernel_stack(sample.s, bpf_get_stack(ctx, sample.s->frames, WL_MAX_KERNEL_FRAMES * 8, 0));
  wl_finish_sample(&sample);
  wl_give_back(sample.s);
  return 0;
}

#include "windlass_allocation.bpf.h"

/* At a place in a process's code, where there is no kernel stack, or in the kernel's. The cookie has the event, and
 * from WL_ARGUMENT_SHIFT on, behind 1, where pt_regs has the argument that counts. */
SEC("kprobe")
int windlass_probe(struct pt_regs* ctx) {
  struct wl_sample sample;
  __u64 cookie = bpf_get_attach_cookie(ctx);
  __u32 argument = cookie >> WL_ARGUMENT_SHIFT;
  if (!wl_begin_sample(&sample, (__u32)cookie)) return 0;
  if (argument) {
    sample.s->event.head.reason = WL_NO_WAIT;
    sample.s->repeats = 0;
  }
  if (!wl_has_kernel_probes) wl_lift_bound(sample.s);
  if (wl_has_kernel_probes && !sample.s->late)
    wl_add_kernel_stack(sample.s, bpf_get_stack(ctx, sample.s->frames, WL_MAX_KERNEL_FRAMES * 8, 0));
  wl_finish_sample(&sample);
  struct wl_stack_key key = sample.s->key;
  wl_give_back(sample.s);
  if (argument) wl_add_to_count(&key, 1, wl_register_at(ctx, (argument - 1) & (WL_REGISTERS_SIZE - 1)));
  return 0;
}

#include "windlass_wait.bpf.h"
#include "windlass_waker.bpf.h"
