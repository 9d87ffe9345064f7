/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Options, set before the program is loaded.
 */
#ifndef WINDLASS_OPTIONS_BPF_H
#define WINDLASS_OPTIONS_BPF_H

#include "windlass_allocation_layout.h"
#include "windlass_event_layout.h"

const volatile __u32 wl_max_user_frames = WL_MAX_USER_FRAMES;
const volatile __u32 wl_max_kernel_frames = WL_MAX_KERNEL_FRAMES;
const volatile __u32 wl_max_raw_stack = WL_MAX_RAW_STACK;
const volatile __u64 wl_raw_bytes_per_window = 1u << 20;
const volatile __u64 wl_wakeup_bytes = 1u << 20;
const volatile __u8 wl_filter = 0;
const volatile __u16 wl_clock_event = 0;       /* the number of the event "cpu" */
const volatile __u16 wl_wait_event = 1;        /* the number of the event "off-cpu" */
const volatile __u32 wl_most_halvings = 0;     /* of the clock's rate; 0 without a clock */
const volatile __u8 wl_has_counters = 0;       /* events of perf besides the clock */
const volatile __u8 wl_has_kernel_probes = 0;  /* places in the kernel's code */
const volatile __u8 wl_can_be_interrupted = 0; /* a program that takes samples, by another one */
const volatile __u8 wl_locks_only = 0;         /* waits that cannot be for a lock are left out */
const volatile __u8 wl_walked_wakers = WL_WAKERS_NONE;
const volatile __u16 wl_allocation_event = 0;
const volatile __u64 wl_allocation_period = 1; /* bytes between samples, on average; 1: every call is one */
/* A distance is -log2(u) as 8.24, * factor >> shift. */
const volatile __u64 wl_distance_factor = 0, wl_distance_shift = 0;
const volatile __u32 wl_allocation_weights[WL_WEIGHTS] = {0};
const volatile __u8 wl_timeline = 0;             /* each sample's time is told */
const volatile __u64 wl_shortest_wait = 0;       /* ns; shorter ones are counted, but not as samples */
const volatile __u32 wl_walks_per_window = 6711; /* of waits, on a CPU, in 2^WL_RAW_WINDOW_SHIFT ns: 50,000 a second */
const volatile __u64 wl_work_per_window = 1u << 26; /* ns of samples, on a CPU, in 2^WL_RAW_WINDOW_SHIFT ns: half */

#endif
