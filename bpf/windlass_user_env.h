/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The environment of the shared unwinder (windlass_step.h) as user code: where the arena and the modules are, and how
 * the target's memory is read. Include this, then windlass_step.h. The BPF program has its own (windlass.bpf.c).
 */
#ifndef WINDLASS_USER_ENV_H
#define WINDLASS_USER_ENV_H

#include "windlass_learned_layout.h"
#include "windlass_table_layout.h"

struct wl_env {
  const unsigned char* arena; /* address of the arena's first byte */
  const struct wl_module* modules;
  __u32 module_count;
  /* Copies `size` bytes of the target at `address`; 0 if done, anything else if not readable. */
  int (*read)(void* context, void* to, __u32 size, __u64 address);
  void* context;
  /* What was learned for a key; 0: nothing. May be null. */
  const struct wl_learned* (*learned)(void* context, const struct wl_learned_key* key);
  __u64 address_mask; /* AArch64: the bits of a code address that no authentication code uses */
};

#define WL_INLINE static inline __attribute__((always_inline, unused))
#define WL_GLOBAL static __attribute__((noinline, unused))
#define WL_OPAQUE(x) ((void)0)

/* The first byte of the chunk that `ref` points into; 0 if there is none. */
WL_INLINE const unsigned char* wl_chunk(const struct wl_env* env, __u32 ref) {
  return env->arena + ((__u64)(ref >> (WL_CHUNK_SHIFT - WL_REF_SHIFT)) << WL_CHUNK_SHIFT);
}

WL_INLINE const struct wl_module* wl_get_module(const struct wl_env* env, __u32 id) {
  return id < env->module_count ? &env->modules[id] : 0;
}

WL_INLINE int wl_read(const struct wl_env* env, void* to, __u32 size, __u64 address) {
  return env->read(env->context, to, size, address);
}

WL_INLINE const struct wl_learned* wl_find_learned(const struct wl_env* env, const struct wl_learned_key* key) {
  return env->learned ? env->learned(env->context, key) : 0;
}

WL_INLINE __u64 wl_address_mask_of(const struct wl_env* env) { return env->address_mask; }

/* The words of the stack at `low` and, above it or there too, at `high`. 0 if both could be read. */
WL_INLINE int wl_read_pair(struct wl_env* env, __u64 low, __u64 high, __u64* first, __u64* second) {
  if (wl_read(env, second, 8, high)) return 1;
  *first = *second;
  return low != high && wl_read(env, first, 8, low);
}

/* User code has no window of the stack: all words are at hand. */
WL_INLINE int wl_peek_pair(const struct wl_env* env, __u64 low, __u64 high, __u64* first, __u64* second) {
  return wl_read_pair((struct wl_env*)env, low, high, first, second);
}

WL_INLINE int wl_bring_pair(struct wl_env* env, __u64 low, __u64 high) {
  (void)env;
  (void)low;
  (void)high;
  return 1;
}

WL_INLINE void wl_note_served(struct wl_env* env, __u32 frames) {
  (void)env;
  (void)frames;
}

/* Whose return addresses those of probes stand for is known to the kernel alone. */
WL_INLINE __u64 wl_probed_pc(const struct wl_env* env, const void* cursor) {
  (void)env;
  (void)cursor;
  return 0;
}

WL_INLINE void wl_expect_stack(struct wl_env* env, __u64 top) {
  (void)env;
  (void)top;
}

#endif
