/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * How the shared unwinder gets at tables, modules and the target's memory inside BPF.
 */
#ifndef WINDLASS_BPF_ACCESS_H
#define WINDLASS_BPF_ACCESS_H

#include "windlass_maps.h"

/* AArch64: the bits of a code address that no authentication code uses; set before the program is loaded. */
const volatile __u64 wl_address_mask = ~0ull;

WL_INLINE const unsigned char* wl_chunk(const struct wl_env* env, __u32 ref) {
  __u32 chunk = ref >> (WL_CHUNK_SHIFT - WL_REF_SHIFT), zero = 0;
  (void)env;
  void* inner = bpf_map_lookup_elem(&arena, &chunk);
  if (!inner) return 0;
  return bpf_map_lookup_elem(inner, &zero);
}

WL_INLINE const struct wl_module* wl_get_module(const struct wl_env* env, __u32 id) {
  (void)env;
  return bpf_map_lookup_elem(&modules, &id);
}

WL_INLINE int wl_read(const struct wl_env* env, void* to, __u32 size, __u64 address) {
  (void)env;
  return bpf_probe_read_user(to, size, (const void*)address) != 0;
}

WL_INLINE const struct wl_learned* wl_find_learned(const struct wl_env* env, const struct wl_learned_key* key) {
  (void)env;
  return bpf_map_lookup_elem(&learned, key);
}

WL_INLINE __u64 wl_address_mask_of(const struct wl_env* env) {
  (void)env;
  return wl_address_mask;
}

/* A walk begins, which will probably read the stack up to `top`; 0: nobody knows. */
WL_INLINE void wl_expect_stack(struct wl_env* env, __u64 top) {
  env->window.top = top;
  env->next_return = 0;
}

#define WL_XOL_BYTES 4096u
#define WL_MOST_RETURNS 64 /* MAX_URETPROBE_DEPTH */
#define WL_CHAINED_RETURNS 8
#define WL_NO_RETURN 1u
#ifdef WL_TARGET_A64
#define WL_RETURN_BYTES 0u /* A call leaves the return address in x30. */
#else
#define WL_RETURN_BYTES 8u
#endif

#define WL_RETURNS_A_CALL 8 /* The verifier goes through every round of a loop. */
#define WL_MORE_RETURNS 1u

/* The return_instance whose caller's stack begins at `sp`, or any if that is 0, among some from `from` on. With
 * WL_MORE_RETURNS the one behind these; 0: there are no more. */
WL_GLOBAL __u64 wl_seek_return(__u64 from, __u64 sp) {
  struct return_instance* at = (struct return_instance*)from;
  for (int i = 0; i < WL_RETURNS_A_CALL && at; i++) {
    if (!sp || BPF_CORE_READ(at, stack) + WL_RETURN_BYTES == sp) return (__u64)at;
    at = BPF_CORE_READ(at, next);
  }
  return at ? (__u64)at | WL_MORE_RETURNS : 0;
}

/* The return address that the kernel keeps for the function whose caller's stack begins at `sp`. 0: none. If `sp` is 0,
 * it is not known, and the next one counts. Some are left over: until Linux 6.10 the list has that of a function whose
 * return is being sampled, and it keeps those that longjmp() has passed by. */
WL_INLINE __u64 wl_kept_return(struct wl_env* env, struct uprobe_task* thread, __u64 sp) {
  if (env->next_return == WL_NO_RETURN) return 0;
  __u64 at = env->next_return;
  if (!at) at = (__u64)BPF_CORE_READ(thread, return_instances);
  for (int i = 0; i < WL_MOST_RETURNS; i += WL_RETURNS_A_CALL) {
    at = wl_seek_return(at, sp);
    if (!(at & WL_MORE_RETURNS)) break;
    at &= ~(__u64)WL_MORE_RETURNS;
  }
  struct return_instance* found = (struct return_instance*)at;
  if (!found) return 0;
  __u64 address = BPF_CORE_READ(found, orig_ret_vaddr);
  for (int i = 0; i < WL_CHAINED_RETURNS && found; i++) {
    int chained = BPF_CORE_READ(found, chained);
    found = BPF_CORE_READ(found, next);
    if (!chained) break;
  }
  env->next_return = found ? (__u64)found : WL_NO_RETURN;
  return address;
}

/* The kernel puts an address of [uprobes] in place of the return address of a function with a uretprobe. Instructions
 * with a uprobe run in [uprobes], too (kernel/events/uprobes.c). Gives the address that the cursor's pc stands for in
 * the running thread, which is asked for return addresses innermost first; 0: it is no such address. */
WL_GLOBAL __u64 wl_probed_pc(struct wl_env* env, struct wl_cursor* cursor) {
  if (!env || !cursor) return 0;
  struct task_struct* task = bpf_get_current_task_btf();
  if (!bpf_core_field_exists(task->utask)) return 0;
  struct uprobe_task* thread = task->utask; /* as nearly all threads have none: without a call of the kernel's */
  if (!thread) return 0;
  __u64 area = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr), pc = cursor->regs[WL_PC];
  if (!area || pc - area >= WL_XOL_BYTES) return 0;
  if (cursor->exact && BPF_CORE_READ(thread, active_uprobe))
    return BPF_CORE_READ(thread, vaddr) + (pc - BPF_CORE_READ(thread, xol_vaddr));
  if (pc != area) return 0;
  return wl_kept_return(env, thread, WL_VALID(cursor, WL_SP) ? cursor->regs[WL_SP] : 0);
}

/* Reads the stack from `from` on into the window. Reads much if frames are small, and the last window served several;
 * else only the bytes needed, up to `end`. Returns 1 if that is more than a small window holds, or cannot be read. */
WL_GLOBAL int wl_refill(struct wl_window* window, __u64 from, __u64 end) {
  if (!window) return 1;
  __u32 served = window->served;
  window->base = from;
  window->served = 0;
  if (served >= window->wanted) {
    __u64 bytes = window->top - from;
    if (window->top <= from) bytes = WL_WINDOW_UNKNOWN;
    if (bytes > WL_WINDOW_BYTES) bytes = WL_WINDOW_BYTES;
    window->size = bytes;
    if (!bpf_probe_read_user(window->words, bytes, (const void*)from)) return 0;
    window->wanted = ~0u; /* the stack's end is near: a read that faults is dear, do not try again */
  }
  if (end - from <= 64) {
    window->size = 64;
    if (!bpf_probe_read_user(window->words, 64, (const void*)from)) return 0;
  }
  window->size = 0;
  return 1;
}

/* As wl_read_pair, if both words are in the window; else 1. One branch: verifiers follow each. */
WL_INLINE int wl_peek_pair(const struct wl_env* env, __u64 low, __u64 high, __u64* first, __u64* second) {
  const struct wl_window* window = &env->window;
  __u64 offset = low - window->base;   /* huge if below the window */
  __u64 end = high + 8 - window->base; /* above `offset` */
  __u64 outside = offset | end | (window->size - end);
  if (outside >> 63 | (offset & 7)) return 1;
  *first = *(const __u64*)((const __u8*)window->words + (offset & (WL_WINDOW_BYTES - 8)));
  *second = *(const __u64*)((const __u8*)window->words + ((end - 8) & (WL_WINDOW_BYTES - 8)));
  return 0;
}

/* Brings both words into the window. 1 if it cannot. */
WL_INLINE int wl_bring_pair(struct wl_env* env, __u64 low, __u64 high) {
  return wl_refill(&env->window, low, high + 8);
}

WL_INLINE void wl_note_served(struct wl_env* env, __u32 frames) { env->window.served += frames; }

/* As wl_read_pair, of words that are not in the window, into env->pair. */
WL_GLOBAL int wl_fetch_pair(struct wl_env* env, __u64 low, __u64 high) {
  if (!env) return 1;
  if (!((low - env->window.base) & 7) && !wl_bring_pair(env, low, high) &&
      !wl_peek_pair(env, low, high, &env->pair[0], &env->pair[1])) {
    env->window.served++;
    return 0;
  }
  if (bpf_probe_read_user(&env->pair[1], 8, (const void*)high)) return 1;
  env->pair[0] = env->pair[1];
  return low != high && bpf_probe_read_user(&env->pair[0], 8, (const void*)low) != 0;
}

/* The words of the stack at `low` and, above it or there too, at `high`. 0 if both could be read. */
WL_INLINE int wl_read_pair(struct wl_env* env, __u64 low, __u64 high, __u64* first, __u64* second) {
  if (!wl_peek_pair(env, low, high, first, second)) {
    env->window.served++;
    return 0;
  }
  if (wl_fetch_pair(env, low, high)) return 1;
  *first = env->pair[0];
  *second = env->pair[1];
  return 0;
}

#endif
