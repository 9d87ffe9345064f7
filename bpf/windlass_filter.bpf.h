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

WL_GLOBAL int wl_passes_filters(__u64 address) {
  struct task_struct* task = (struct task_struct*)address;
  if (!task) return 0;
  const volatile struct wl_filter_list *only = &wl_filters.only, *except = &wl_filters.except;
  if (only->comms || except->comms) {
    __u64 comm[2] = {};
    bpf_probe_read_kernel_str(comm, sizeof comm, &task->comm);
    if (only->comms && !wl_has_comm(only, comm)) return 0;
    if (wl_has_comm(except, comm)) return 0;
  }
  if (only->uids || except->uids) {
    __u32 uid = BPF_CORE_READ(task, cred, uid.val);
    if (only->uids && !wl_has_uid(only, uid)) return 0;
    if (wl_has_uid(except, uid)) return 0;
  }
  if (only->cgroups || except->cgroups) {
    __u32 found = wl_cgroups_of(address);
    if (only->cgroups && !(found & 1)) return 0;
    if (found & 2) return 0;
  }
  return 1;
}

#endif
