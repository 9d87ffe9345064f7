/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The environment of the shared unwinder inside BPF; windlass_user_env.h is its counterpart.
 */
#ifndef WINDLASS_BPF_ENV_H
#define WINDLASS_BPF_ENV_H

#include "windlass_maps.h"

struct wl_env {
  struct wl_window *window;
};

#define WL_INLINE static inline __attribute__((always_inline, unused))
#define WL_NOINLINE static __attribute__((noinline, unused))
/* The compiler must forget what it knows of x: where it proves a mask redundant, the verifier still wants to see it. */
#define WL_OPAQUE(x) asm volatile("" : "+r"(x))

WL_INLINE const unsigned char *wl_chunk(const struct wl_env *env, __u32 ref) {
  __u32 chunk = ref >> (WL_CHUNK_SHIFT - WL_REF_SHIFT), zero = 0;
  (void)env;
  void *inner = bpf_map_lookup_elem(&arena, &chunk);
  if (!inner) return 0;
  return bpf_map_lookup_elem(inner, &zero);
}

WL_INLINE const struct wl_module *wl_get_module(const struct wl_env *env, __u32 id) {
  (void)env;
  return bpf_map_lookup_elem(&modules, &id);
}

WL_INLINE int wl_read(const struct wl_env *env, void *to, __u32 size, __u64 address) {
  (void)env;
  return bpf_probe_read_user(to, size, (const void *)address) != 0;
}

/* Reads the stack from `from` on into the window: much of it where frames are small and the last window served several,
 * else only what is asked for (up to `end`). A read through the kernel costs as much as a dozen frames' arithmetic. */
static __noinline int wl_refill(struct wl_window *window, __u64 from, __u64 end) {
  if (!window) return 1;
  __u32 served = window->served;
  window->base = from;
  window->served = 0;
  if (served >= window->wanted) {
    window->size = WL_WINDOW_BYTES;
    if (!bpf_probe_read_user(window->words, WL_WINDOW_BYTES, (const void *)from)) return 0;
    window->wanted = ~0u; /* the stack's end is near: a read that faults is dear, do not try again */
  }
  __u64 size = end - from;
  if (size <= 64) {
    window->size = 64;
    if (!bpf_probe_read_user(window->words, 64, (const void *)from)) return 0;
  }
  window->size = 0;
  return 1;
}

/* The return address at cfa - 8 and, unless fp_offset is 0, the frame pointer saved at cfa + fp_offset. */
WL_INLINE int wl_read_saved(const struct wl_env *env, __u64 cfa, __s64 fp_offset, __u64 *fp, __u64 *ra) {
  struct wl_window *window = env->window;
  __u64 low = fp_offset ? cfa + fp_offset : cfa - 8;
  __u64 offset = low - window->base; /* huge if below the window */
  if (offset > window->size || cfa - window->base > window->size || (offset & 7)) {
    if ((offset & 7) || wl_refill(window, low, cfa)) {
      if (fp_offset && bpf_probe_read_user(fp, 8, (const void *)low)) return 1;
      return bpf_probe_read_user(ra, 8, (const void *)(cfa - 8)) != 0;
    }
    offset = 0;
  }
  window->served++;
  if (fp_offset) *fp = *(__u64 *)((__u8 *)window->words + (offset & (WL_WINDOW_BYTES - 8)));
  offset = cfa - 8 - window->base;
  *ra = *(__u64 *)((__u8 *)window->words + (offset & (WL_WINDOW_BYTES - 8)));
  return 0;
}

#endif
