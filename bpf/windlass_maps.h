/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The maps of the programs, and the few structs that only they and their loader share. Sizes that depend on the machine
 * or an option are set by the loader before it loads.
 */
#ifndef WINDLASS_MAPS_H
#define WINDLASS_MAPS_H

#include "windlass_allocation_layout.h"
#include "windlass_bpf_state.h"
#include "windlass_memo_entry.h"
#include "windlass_unwind.h"

struct wl_raw_scratch {
  struct wl_raw_event event;
  __u8 bytes[WL_RAW_BYTES + WL_RAW_INTERPRETED_BYTES + 4096];
  __u64 copy_address; /* next byte of the stack to read */
  __u64 copy_limit;   /* the first that is not wanted */
  __u64 copy_pages;   /* those copied, as wl_raw_event has them */
  __u32 copy_offset;  /* where it goes in bytes[] */
  __u32 copy_end;     /* where to stop */
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, WL_MAX_CHUNKS);
  __type(key, __u32);
  __array(
      values, struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __uint(key_size, 4);
        __uint(value_size, WL_CHUNK_SIZE + WL_CHUNK_SLACK);
      });
} arena SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, WL_MAX_MODULES);
  __type(key, __u32);
  __type(value, struct wl_module);
} modules SEC(".maps");

/* windlass_sample, once that is loaded. */
struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} sampler SEC(".maps");

/* Preallocated: programs of type perf_event may use no other hash on older kernels, and memory stays bounded. */
/* Counts the changes of `processes`, `epochs` and `targets` that a process known before may notice. Who changes these
 * maps, kernel side or agent, counts afterwards. So what was looked up holds until the count changes. */
__u64 wl_process_changes = 0;

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __type(key, __u32);
  __type(value, struct wl_process);
} processes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __type(key, __u32);
  __type(value, __u64);
} epochs SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __type(key, __u32);
  __type(value, __u8); /* wl_target */
} targets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1u << 18);
  __type(key, struct wl_stack_key);
  __type(value, struct wl_count);
} counts SEC(".maps");

/* By the kernel's number of the thread. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_wait);
} waits SEC(".maps");

/* By the cookie of the probe there. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_allocation_place);
} allocation_places SEC(".maps");

/* Functions that allocate, those of a file together. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_code_range);
} allocators SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct wl_block_key);
  __type(value, struct wl_block);
} sampled_blocks SEC(".maps");

struct wl_allocation_state {
  __s64 left; /* bytes until the next sample */
  __u64 has_begun;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_allocation_state);
} allocation_states SEC(".maps");

/* What is used least goes first, and so goes what was learned of processes that are gone. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 1u << 16);
  __type(key, struct wl_learned_key);
  __type(value, struct wl_learned);
} learned SEC(".maps");

/* The labels that were sent last, by the low bits of their hash. No hash of the kernel's: programs that interrupt each
 * other use it, and others may be sent again. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, WL_KNOWN_LABELS);
  __type(key, __u32);
  __type(value, __u64);
} known_labels SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1u << 24);
} events SEC(".maps");

/* One element a CPU: per-CPU maps end at 32 KiB a value. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_scratch);
} scratch SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_raw_scratch);
} raw_scratch SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_memo);
} memo SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_trails);
} trails SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_cpu_stats);
} stats SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct wl_budget);
} budget SEC(".maps");

#endif
