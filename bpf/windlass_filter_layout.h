/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Which threads are sampled, beyond the choice of processes: by name, user and cgroup.
 */
#ifndef WINDLASS_FILTER_LAYOUT_H
#define WINDLASS_FILTER_LAYOUT_H

#include "windlass_event_layout.h"
#include "windlass_types.h"

#define WL_MAX_FILTERS 16u      /* of each kind */
#define WL_MAX_CGROUP_DEPTH 24u /* What is deeper is in its ancestor at this depth only. */

/* A list that is empty lets everything pass. */
struct wl_filter_list {
  __u32 comms, uids, cgroups, reserved; /* how many there are */
  __u64 comm[WL_MAX_FILTERS][2];        /* as the kernel has them, with zeroes behind */
  __u32 uid[WL_MAX_FILTERS];
  __u64 cgroup[WL_MAX_FILTERS]; /* the cgroup's id, which is the inode of its folder */
};

/* A thread passes if each list of `only` that is not empty has it, and none of `except`. */
struct wl_filters {
  __u32 used, reserved;
  struct wl_filter_list only, except;
};

#endif
