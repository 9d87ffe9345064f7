/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The environment of the shared unwinder inside BPF; windlass_user_env.h is its counterpart.
 */
#ifndef WINDLASS_BPF_ENV_H
#define WINDLASS_BPF_ENV_H

#include "windlass_maps.h"

struct wl_env {};

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

#endif
