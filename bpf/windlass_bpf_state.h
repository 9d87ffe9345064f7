/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * What one CPU of the kernel side works on; shared by the BPF program and its loader (never by the agent).
 */
#ifndef WINDLASS_BPF_STATE_H
#define WINDLASS_BPF_STATE_H

#include "windlass_ends.h"
#include "windlass_event_layout.h"
#include "windlass_types.h"

#define WL_MAX_MODULES 65536u
#define WL_KNOWN_LABELS 65536u /* A power of two. */

/* A sample counts as the ticks that it stands for. */
struct wl_cpu_stats {
  __u64 samples;
  __u64 idle; /* not one of the processes profiled */
  __u64 counted;
  __u64 stack_events;
  __u64 raw_events;
  __u64 lost;
  __u64 raw_refused;
  __u64 raw_bytes;
  __u64 user_frames;
  __u64 memo_hits;
  __u64 followed_frames; /* of threads' last walks */
  __u64 managed_stacks;  /* with frames that were left by a code manager's rows */
  __u64 learned_stacks;  /* with frames that were left as was learned from the agent */
  __u64 lost_process_events;
  __u64 waits;       /* that ended and were counted */
  __u64 short_waits; /* shorter than asked for */
  __u64 lost_waits;  /* without room for them */
  __u64 lost_times;  /* without room for their wl_time_event */
  __u64 left_out;    /* ticks of `samples` that had no sample of their own */
  __u64 halvings;    /* of the rate, at most so far */
  __u64 unfollowed;  /* sampled blocks without room for their wl_block */
  __u64 ends[WL_END_COUNT];
  __u64 skipped; /* ticks of the clock since the last one that was not left out */
};

/* Bytes of raw stacks in the current window of time, over all CPUs. */
struct wl_budget {
  __u64 window;
  __u64 bytes;
};

#define WL_RAW_CODE_BEFORE 32u
#define WL_RAW_CODE 64u
#define WL_RAW_INTERPRETED_BYTES (WL_MAX_RAW_INTERPRETED_FRAMES * sizeof(struct wl_interpreted_frame))
/* kernel frames, code, stack */
#define WL_RAW_BYTES ((WL_MAX_KERNEL_FRAMES + 1) * 8 + WL_RAW_CODE + WL_MAX_RAW_STACK)

#endif
