/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Processes that come, change and go: the parts that cannot wait for the agent. A mapping set is used only while its
 * epoch is the process's current epoch. The process gets a new epoch here, at once, by fork, by exec, and by a mapping
 * in the place of another. The agent hears of the new epoch, and publishes a set with it.
 */
#ifndef WINDLASS_PROCESS_BPF_H
#define WINDLASS_PROCESS_BPF_H

#include "windlass_bpf_access.h"
#include "windlass_ids.bpf.h"
#include "windlass_lookup.h"
#include "windlass_options.bpf.h"

WL_INLINE void wl_emit_process(__u32 type, __u32 tgid, __u64 epoch, __u64 address, __u64 length) {
  struct wl_process_event* event = bpf_ringbuf_reserve(&events, sizeof *event, 0);
  if (!event) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct wl_cpu_stats* st = bpf_map_lookup_elem(&stats, &cpu);
    if (st) __sync_fetch_and_add(&st->lost_process_events, 1);
    return;
  }
  event->head.type = type;
  event->head.cpu = bpf_get_smp_processor_id();
  event->head.time = bpf_ktime_get_ns();
  event->head.tgid = tgid;
  event->head.labels = 0;
  event->head.tid = (__u32)wl_current_ids();
  bpf_get_current_comm(event->head.comm, sizeof event->head.comm);
  event->epoch = epoch;
  event->address = address;
  event->length = length;
  bpf_ringbuf_submit(event, 0);
}

WL_INLINE int wl_is_target(__u32 tgid) { return !wl_filter || bpf_map_lookup_elem(&targets, &tgid); }

WL_INLINE int wl_is_sampled(__u32 tgid) {
  if (!wl_filter) return 1;
  const __u8* target = bpf_map_lookup_elem(&targets, &tgid);
  return target && *target == WL_TARGET_SAMPLED;
}

WL_INLINE void wl_count_change(void) { __sync_fetch_and_add(&wl_process_changes, 1); }

/* A child starts with its parent's mappings: they are the same, so it is unwound from its first instruction on. */
SEC("raw_tp/sched_process_fork")
int BPF_PROG(windlass_fork, struct task_struct* parent, struct task_struct* child) {
  if (BPF_CORE_READ(child, tgid) != BPF_CORE_READ(child, pid)) return 0; /* a thread */
  __u32 from = wl_task_tgid(parent), to = wl_task_tgid(child);
  if (!to || !wl_is_target(from)) return 0;
  if (wl_filter) {
    __u8 sampled = WL_TARGET_SAMPLED;
    bpf_map_update_elem(&targets, &to, &sampled, BPF_ANY);
  }
  __u64 epoch = bpf_ktime_get_ns();
  bpf_map_update_elem(&epochs, &to, &epoch, BPF_ANY);
  const struct wl_process* process = bpf_map_lookup_elem(&processes, &from);
  const __u64* current = bpf_map_lookup_elem(&epochs, &from);
  if (process && process->epoch == (current ? *current : 0)) {
    struct wl_process copy = *process;
    copy.epoch = epoch;
    bpf_map_update_elem(&processes, &to, &copy, BPF_ANY);
  } else {
    bpf_map_delete_elem(&processes, &to);
  }
  wl_emit_process(WL_EVENT_FORK, from, epoch, to, 0);
  return 0;
}

SEC("raw_tp/sched_process_exec")
int BPF_PROG(windlass_exec, struct task_struct* task) {
  __u32 tgid = wl_task_tgid(task);
  if (!tgid || !wl_is_target(tgid)) return 0;
  __u64 epoch = bpf_ktime_get_ns();
  bpf_map_update_elem(&epochs, &tgid, &epoch, BPF_ANY);
  bpf_map_delete_elem(&processes, &tgid);
  __u8* target = wl_filter ? bpf_map_lookup_elem(&targets, &tgid) : 0;
  if (target) *target = WL_TARGET_SAMPLED;
  wl_count_change();
  wl_emit_process(WL_EVENT_EXEC, tgid, epoch, 0, 0);
  return 0;
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(windlass_exit, struct task_struct* task) {
  if (BPF_CORE_READ(task, signal, live.counter) != 0) return 0;
  __u32 tgid = wl_task_tgid(task);
  if (!tgid || !wl_is_target(tgid)) return 0;
  const __u64* current = bpf_map_lookup_elem(&epochs, &tgid);
  __u64 epoch = current ? *current : 0;
  bpf_map_delete_elem(&processes, &tgid);
  bpf_map_delete_elem(&epochs, &tgid);
  if (wl_filter) bpf_map_delete_elem(&targets, &tgid);
  wl_count_change(); /* the number may come again */
  wl_emit_process(WL_EVENT_EXIT, tgid, epoch, 0, 0);
  return 0;
}

/* Other code is there from now on. */
WL_INLINE void wl_replaced(__u32 tgid, __u64 address, __u64 length) {
  __u64 epoch = bpf_ktime_get_ns();
  bpf_map_update_elem(&epochs, &tgid, &epoch, BPF_ANY);
  wl_count_change();
  wl_emit_process(WL_EVENT_UNMAP, tgid, epoch, address, length);
}

/* Called when the kernel has chosen the place of a new mapping. If executable code is known there, it has been unmapped
 * (dlclose, then dlopen of something else): forget that code now. A hook here instead of at munmap costs nothing on
 * other system calls. A system-call tracepoint sends every call of every process through the slow path. */
SEC("raw_tp/vm_unmapped_area")
int BPF_PROG(windlass_unmapped_area, unsigned long address, struct vm_unmapped_area_info* info) {
  if ((__s64)address <= 0) return 0; /* an error */
  __u32 tgid = wl_current_ids() >> 32;
  const struct wl_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process) return 0;
  struct wl_env env = {};
  __u32 count = process->map_count;
  const unsigned char* chunk = wl_chunk(&env, process->maps);
  if (!chunk || count == 0) return 0;
  __u64 length = BPF_CORE_READ(info, length);
  if (!wl_overlaps(&env, process->maps, count, address, length)) return 0;
  wl_replaced(tgid, address, length);
  return 0;
}

/* Called when memory becomes executable: by mmap, also at an address of the program's choice (MAP_FIXED), or by
 * mprotect. Both tell perf here, before they return. If other code is known there, forget that code now. Anonymous
 * memory over anonymous memory is code made at run time both before and after: mprotect makes it writable and
 * executable by turns.
 *
 * This is the only hooked function that is no tracepoint. Tracepoints of system calls would send every call of every
 * process through the slow path. Kernels that cannot hook functions (AArch64 before 6.4) go without
 * (kernel_side.cpp). */
SEC("fentry/perf_event_mmap")
int BPF_PROG(windlass_mapped, struct vm_area_struct* area) {
  if (!(area->vm_flags & VM_EXEC)) return 0;
  __u32 tgid = wl_current_ids() >> 32;
  const struct wl_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process) return 0;
  struct wl_env env = {};
  __u32 count = process->map_count;
  __u64 begin = area->vm_start, end = area->vm_end;
  if (count == 0 || !wl_has_other_code(&env, process->maps, count, begin, end, area->vm_file != 0)) return 0;
  wl_replaced(tgid, begin, end - begin);
  return 0;
}

#endif
