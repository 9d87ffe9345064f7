/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The environment of the shared unwinder inside BPF; windlass_user_env.h is its counterpart. Before it come the
 * kernel's helpers, the maps behind it: struct wl_env is part of what they hold.
 */
#ifndef WINDLASS_BPF_ENV_H
#define WINDLASS_BPF_ENV_H

#include "windlass_cursor.h"

/* A piece of the user stack, read at once: a read through the kernel costs as much as a dozen frames' arithmetic. */
#define WL_WINDOW_BYTES 8192u
#define WL_WINDOW_UNKNOWN 2048u /* while it is not known how far the stack reaches */
#define WL_WINDOW_SERVED 2u     /* frames a window must have served for the next to be read whole */
struct wl_window {
  __u64 base;
  __u64 top;    /* how far the stack reached at the thread's last sample; 0: not known */
  __u32 size;   /* bytes valid */
  __u32 served; /* frames, since it was filled */
  __u32 wanted; /* how many it must have served for the next to be filled whole */
  __u32 reserved;
  __u64 words[WL_WINDOW_BYTES / 8];
};

struct wl_env {
  struct wl_window window;
  __u64 pair[2];     /* Two words of the stack that are not in the window. */
  __u64 next_return; /* Of wl_probed_pc(): the struct return_instance that comes next; 0: the first. */
};

#define WL_INLINE static inline __attribute__((always_inline, unused))
/* A function that the verifier checks once and alone, however often and wherever it is called. The caller knows neither
 * its result nor its changes. For the verifier, pointers given to it may be null. */
#define WL_GLOBAL __attribute__((noinline))
/* The compiler must forget what it knows of x: it would remove a mask that it proves redundant, but that the verifier
 * needs. */
#define WL_OPAQUE(x) asm volatile("" : "+r"(x))

#endif
