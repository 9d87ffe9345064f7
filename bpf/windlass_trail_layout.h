/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Where the last walks of threads are kept, and their processes. windlass_trail.h says what for.
 */
#ifndef WINDLASS_TRAIL_LAYOUT_H
#define WINDLASS_TRAIL_LAYOUT_H

#include "windlass_process_layout.h"

#define WL_TRAIL_FRAMES 128u /* A power of two. */
#define WL_TRAILS 32u        /* Of a CPU; a power of two. */

/* A frame that a walk came to, and how from the frame below. */
struct wl_trail_frame {
  __u64 frame; /* The pc, with WL_FRAME_EXACT if it is an instruction pointer. */
  __u64 sp;
  __u64 fp;
  __s32 saved; /* Where the lower of the step's two words lies, from sp: fp, or with -8 the return address alone. 0: the
                  step was no plain one. */
  __u32 valid; /* As the cursor's. */
};

/* The frames of a thread's last walk, outermost first. Without the frame that was sampled. */
struct wl_trail {
  __u32 tid;
  __u32 space;
  __u32 count;
  __u32 tgid;    /* Of `process`; 0: that is not known. */
  __u32 keeps_x; /* The thread's walks need the extra register. */
  __u32 reserved;
  __u64 changes;             /* The value of wl_process_changes for which `process` holds. */
  struct wl_process process; /* What the maps say. */
  struct wl_trail_frame frames[WL_TRAIL_FRAMES];
};

struct wl_trails {
  struct wl_trail of[WL_TRAILS];
};

enum wl_trail_phase {
  WL_TRAIL_SOUGHT, /* The walk has not come to a frame of the trail. */
  WL_TRAIL_MET,    /* It is at frame `at`, or should be. */
  WL_TRAIL_PASSED, /* It has left the trail's outermost frame. */
  WL_TRAIL_LOST,   /* It met the trail, and came to another frame later. */
};

/* A frame as the walk came to it. */
struct wl_fresh_frame {
  __u64 frame;
  __u64 sp;
  __u64 fp;
  __u64 value; /* The memo's, of the plain rule that led here; 0: it was no such rule. */
  __u64 valid;
};

/* A walk beside a trail. */
struct wl_trail_walk {
  __u64 low_sp;                                 /* Up to this sp the walk is not on the trail. */
  __u64 first_sp;                               /* Of the sampled frame. */
  __u32 phase;                                  /* wl_trail_phase */
  __u32 at;                                     /* The trail's frame that the walk has come to, or may come to next. */
  __u32 met;                                    /* The trail's frame where the walk met it. */
  __u32 before;                                 /* User frames of the walk before that one. */
  __u32 followed;                               /* Frames from there on that are the trail's. */
  __u32 misses;                                 /* How often the walk came near the trail without meeting it. */
  __u32 count;                                  /* Of new frames so far. */
  __u32 new_count;                              /* Of those until the trail was met. */
  struct wl_fresh_frame fresh[WL_TRAIL_FRAMES]; /* New frames by number; of more than there is room for, the last. */
};

#endif
