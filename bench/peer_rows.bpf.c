/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * A straight implementation of what published eBPF profilers do: mapping by binary search, row by binary search, two
 * reads of the stack a frame, no memo. It has one process only, a flat array of rows, and inlined look-ups: what costs
 * the peers more (an LPM trie or a hash over all processes, nested maps, tail calls) is left out in their favour.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "peer_rows.h"
#include "vmlinux_min.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile __u32 peer_tgid = 0;
const volatile __u32 peer_mapping_count = 0;

struct peer_scratch {
  __u64 pc, sp, fp, hash;
  __u32 frames, exact, complete, reserved;
  __u64 stack[PEER_FRAMES];
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct peer_row);
} rows SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 4096);
  __type(key, __u32);
  __type(value, struct peer_module);
} peer_modules SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, PEER_MAX_MAPPINGS);
  __type(key, __u32);
  __type(value, struct peer_mapping);
} mappings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct peer_scratch);
} peer_scratches SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __type(key, __u64);
  __type(value, __u64);
} stacks SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct peer_stats);
} peer_totals SEC(".maps");

#define PEER_OPAQUE(x) asm volatile("" : "+r"(x))

/* 1 if a < b, without a branch: the verifier follows both ways of one. */
static __always_inline __u64 peer_less(__u64 a, __u64 b) {
  PEER_OPAQUE(a);
  __u64 less = (a - b) >> 63;
  PEER_OPAQUE(less);
  return less;
}

static __noinline const struct peer_mapping* peer_find_mapping(__u64 pc) {
  __u64 before = 0;
  for (__u32 step = PEER_MAX_MAPPINGS / 2; step > 0; step >>= 1) {
    if (step > peer_mapping_count) continue;
    __u32 index = before + step - 1;
    struct peer_mapping* mapping = bpf_map_lookup_elem(&mappings, &index);
    if (!mapping) return 0;
    __u64 no = peer_less(peer_mapping_count, before + step) | peer_less(pc, mapping->end);
    before += step * (no ^ 1);
  }
  __u32 index = before;
  struct peer_mapping* mapping = bpf_map_lookup_elem(&mappings, &index);
  return mapping && mapping->begin <= pc && pc < mapping->end ? mapping : 0;
}

/* The last row at or before the address. */
static __noinline const struct peer_row* peer_find_row(__u32 module, __u64 address) {
  struct peer_module* m = bpf_map_lookup_elem(&peer_modules, &module);
  if (!m) return 0;
  __u32 first = m->first, count = m->count;
  __u64 before = 0;
  for (__u32 step = 1u << 22; step > 0; step >>= 1) {
    if (step > count) continue;
    __u32 index = first + (__u32)before + step - 1;
    struct peer_row* row = bpf_map_lookup_elem(&rows, &index);
    __u64 no = 1;
    if (row) no = peer_less(count, before + step) | peer_less(address, row->pc);
    before += step * (no ^ 1);
  }
  if (before == 0) return 0;
  __u32 index = first + (__u32)before - 1;
  return bpf_map_lookup_elem(&rows, &index);
}

static long peer_frame(__u32 round, void* context) {
  __u32 zero = 0;
  struct peer_scratch* s = bpf_map_lookup_elem(&peer_scratches, &zero);
  if (!s) return 1;
  __u64 pc = s->pc;
  s->stack[s->frames & (PEER_FRAMES - 1)] = pc;
  s->hash = (s->hash ^ pc) * 0x9e3779b97f4a7c15ull;
  s->hash ^= s->hash >> 29;
  s->frames++;
  if (!s->exact) pc--;
  const struct peer_mapping* mapping = peer_find_mapping(pc);
  if (!mapping) return 1;
  const struct peer_row* row = peer_find_row(mapping->module, pc - mapping->bias);
  if (!row) return 1;
  __u64 cfa = row->cfa_offset;
  if (row->cfa == PEER_CFA_END) {
    s->complete = 1;
    return 1;
  }
  if (row->cfa == PEER_CFA_RSP) {
    cfa += s->sp;
  } else if (row->cfa == PEER_CFA_RBP) {
    cfa += s->fp;
  } else if (row->cfa == PEER_CFA_PLT) {
    cfa += s->sp + ((pc & 15) >= 11 ? 8 : 0);
  } else {
    return 1;
  }
  __u64 ra = 0;
  if (bpf_probe_read_user(&ra, 8, (void*)(cfa - 8))) return 1;
  if (row->fp == PEER_FP_CFA) {
    if (bpf_probe_read_user(&s->fp, 8, (void*)(cfa + row->fp_offset))) return 1;
  }
  if (ra == 0) {
    s->complete = 1;
    return 1;
  }
  s->pc = ra;
  s->sp = cfa;
  s->exact = 0;
  return 0;
}

SEC("perf_event")
int peer_sample(struct bpf_perf_event_data* ctx) {
  __u32 zero = 0;
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  if (tgid != peer_tgid) return 0;
  struct peer_scratch* s = bpf_map_lookup_elem(&peer_scratches, &zero);
  struct peer_stats* st = bpf_map_lookup_elem(&peer_totals, &zero);
  if (!s || !st) return 0;
  s->hash = 0;
  if ((__s64)ctx->regs.rip < 0) {
    long bytes = bpf_get_stack(ctx, s->stack, 127 * 8, 0);
    s->hash = bytes;
  }
  struct pt_regs___kernel* regs = (struct pt_regs___kernel*)bpf_task_pt_regs(bpf_get_current_task_btf());
  s->pc = regs->ip;
  s->sp = regs->sp;
  s->fp = regs->bp;
  s->exact = 1;
  s->frames = 0;
  s->complete = 0;
  bpf_loop(PEER_FRAMES, peer_frame, &zero, 0);
  st->samples++;
  st->frames += s->frames;
  st->complete += s->complete;
  __u64 key = s->hash;
  __u64* count = bpf_map_lookup_elem(&stacks, &key);
  if (count) {
    __sync_fetch_and_add(count, 1);
  } else {
    __u64 one = 1;
    bpf_map_update_elem(&stacks, &key, &one, BPF_NOEXIST);
  }
  return 0;
}
