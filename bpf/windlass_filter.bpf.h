/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The filters of windlass_filter_layout.h, asked before anything of a sample is looked at.
 */
#ifndef WINDLASS_FILTER_BPF_H
#define WINDLASS_FILTER_BPF_H

#include "windlass_filter_layout.h"

const volatile struct wl_filters wl_filters = {};

WL_INLINE int wl_has_comm(const volatile struct wl_filter_list* list, const __u64* comm) {
  for (__u32 i = 0; i < WL_MAX_FILTERS && i < list->comms; i++) {
    if (list->comm[i][0] == comm[0] && list->comm[i][1] == comm[1]) return 1;
  }
  return 0;
}

WL_INLINE int wl_has_uid(const volatile struct wl_filter_list* list, __u32 uid) {
  for (__u32 i = 0; i < WL_MAX_FILTERS && i < list->uids; i++) {
    if (list->uid[i] == uid) return 1;
  }
  return 0;
}

WL_INLINE int wl_has_cgroup_id(const volatile struct wl_filter_list* list, __u64 id) {
  for (__u32 i = 0; i < WL_MAX_FILTERS && i < list->cgroups; i++) {
    if (list->cgroup[i] == id) return 1;
  }
  return 0;
}

/* Is the task in one of the cgroups, or below? Bit 0: of `only`, bit 1: of `except`. */
WL_GLOBAL __u32 wl_cgroups_of(__u64 address) {
  struct task_struct* task = (struct task_struct*)address;
  if (!task) return 0;
  struct cgroup* group = BPF_CORE_READ(task, cgroups, dfl_cgrp);
  __u32 found = 0;
  for (__u32 depth = 0; depth < WL_MAX_CGROUP_DEPTH && group; depth++) {
    __u64 id = BPF_CORE_READ(group, kn, id);
    if (wl_has_cgroup_id(&wl_filters.only, id)) found |= 1;
    if (wl_has_cgroup_id(&wl_filters.except, id)) found |= 2;
    struct cgroup_subsys_state* parent = BPF_CORE_READ(group, self.parent);
    group = parent ? BPF_CORE_READ(parent, cgroup) : 0;
  }
  return found;
}

/* Those of cgroups that were met, behind the id: a cgroup's id is never given again, and its ancestors stay. */
#define WL_CGROUP_MEMO 256u
__u64 wl_cgroup_memo[WL_CGROUP_MEMO] = {};

WL_INLINE __u32 wl_cgroups_of_current(void) {
  __u64 id = bpf_get_current_cgroup_id();
  volatile __u64* memo = &wl_cgroup_memo[id & (WL_CGROUP_MEMO - 1)];
  __u64 known = *memo;
  if (known >> 2 != id) *memo = known = id << 2 | wl_cgroups_of((__u64)bpf_get_current_task());
  return known & 3;
}

WL_INLINE int wl_passes_comm(const __u64* comm) {
  if (wl_filters.only.comms && !wl_has_comm(&wl_filters.only, comm)) return 0;
  return !wl_has_comm(&wl_filters.except, comm);
}

WL_INLINE int wl_passes_uid(__u32 uid) {
  if (wl_filters.only.uids && !wl_has_uid(&wl_filters.only, uid)) return 0;
  return !wl_has_uid(&wl_filters.except, uid);
}

WL_INLINE int wl_passes_cgroups(__u32 found) { return !(wl_filters.only.cgroups && !(found & 1)) && !(found & 2); }

/* The bytes of a text up to its first zero, and zeroes behind. Before 5.17 a shorter name is written over a longer. */
WL_INLINE void wl_end_comm(__u64* comm) {
  const __u64 ones = 0x0101010101010101ull, tops = 0x8080808080808080ull;
  __u64 first = (comm[0] - ones) & ~comm[0] & tops; /* the lowest bit that is set is in the first zero byte */
  __u64 second = (comm[1] - ones) & ~comm[1] & tops;
  comm[0] &= ((first & -first) >> 7) - 1;
  comm[1] = first ? 0 : comm[1] & (((second & -second) >> 7) - 1);
}

/* The running thread. Nothing is copied that can be loaded: a tick that is filtered out should cost next to nothing. */
WL_GLOBAL int wl_current_passes_filters(void) {
  const volatile struct wl_filter_list *only = &wl_filters.only, *except = &wl_filters.except;
  if (only->uids || except->uids) {
    if (!wl_passes_uid((__u32)bpf_get_current_uid_gid())) return 0;
  }
  if (only->comms || except->comms) {
    const __u64* name = (const __u64*)__builtin_preserve_access_index(&bpf_get_current_task_btf()->comm);
    __u64 comm[2] = {name[0], name[1]};
    wl_end_comm(comm);
    if (!wl_passes_comm(comm)) return 0;
  }
  if (only->cgroups || except->cgroups) return wl_passes_cgroups(wl_cgroups_of_current());
  return 1;
}

/* Another thread. */
WL_GLOBAL int wl_passes_filters(__u64 address) {
  struct task_struct* task = (struct task_struct*)address;
  if (!task) return 0;
  const volatile struct wl_filter_list *only = &wl_filters.only, *except = &wl_filters.except;
  if (only->uids || except->uids) {
    if (!wl_passes_uid(BPF_CORE_READ(task, cred, uid.val))) return 0;
  }
  if (only->comms || except->comms) {
    __u64 comm[2] = {};
    bpf_probe_read_kernel_str(comm, sizeof comm, &task->comm);
    if (!wl_passes_comm(comm)) return 0;
  }
  if (only->cgroups || except->cgroups) return wl_passes_cgroups(wl_cgroups_of(address));
  return 1;
}

#endif
