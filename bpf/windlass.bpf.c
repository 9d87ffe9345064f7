/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The sampler: a perf_event program that unwinds the kernel and the user stack of whatever runs, in one go (bpf_loop, no
 * tail calls). Every sample ends as exactly one of: counted (a stack seen before), a stack event, a raw event, lost.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "vmlinux_min.h"
#include "windlass_maps.h"

#include "windlass_bpf_env.h"
#include "windlass_memo.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Options, set before the program is loaded. */
const volatile __u32 wl_max_user_frames = WL_MAX_USER_FRAMES;
const volatile __u32 wl_max_kernel_frames = WL_MAX_KERNEL_FRAMES;
const volatile __u32 wl_max_raw_stack = WL_MAX_RAW_STACK;
const volatile __u64 wl_raw_bytes_per_window = 1u << 20;
const volatile __u64 wl_wakeup_bytes = 1u << 20;
const volatile __u8 wl_filter = 0;

#include "windlass_process.bpf.h"

/* What a sample that is only counted can do without. */
WL_INLINE void wl_stamp(struct wl_event_head *head) {
  head->time = bpf_ktime_get_ns();
  bpf_get_current_comm(head->comm, sizeof head->comm);
}

/* Waking the agent costs an interrupt, several microseconds in a virtual machine. It looks into the ring several times
 * a second by itself; samples wake it only when the ring fills. */
WL_INLINE __u64 wl_wakeup(void) {
  return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > wl_wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

#include "windlass_raw.bpf.h"

/* What the rounds of the walk are given. All that changes from frame to frame is in scratch->walk: what the verifier sees
 * on the stack it tracks by value, and would follow 2,048 rounds one by one. */
struct wl_round {
  struct wl_scratch *scratch;
  struct wl_memo *memo;
};

WL_INLINE __u64 wl_mix(__u64 hash, __u64 value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

/* A rule that is not plain, or an address that the memo does not know: looks it up, applies it, remembers it. */
static __noinline int wl_step_slow(struct wl_scratch *s, struct wl_memo *m, __u64 pc) {
  struct wl_env env = {};
  if (!s || !m) return WL_END_INTERNAL;
  struct wl_walk *walk = &s->walk;
  struct wl_memo_entry *entry = &m->entries[wl_memo_slot(walk->space, pc)];
  __u32 ref = 0, x_reg;
  if (wl_memo_hit(entry, wl_memo_tag(walk->space, pc), walk->space)) { /* not plain */
    walk->memo_hits++;
    ref = wl_memo_ref(entry->value);
    x_reg = wl_memo_xreg(entry->value);
  } else {
    const struct wl_mapping *mapping = wl_find_mapping(&env, walk->maps, walk->map_count, pc);
    if (!mapping) return WL_END_NO_MAPPING;
    const struct wl_module *module = wl_get_module(&env, mapping->module);
    if (!module) return WL_END_PENDING;
    x_reg = module->x_reg;
    if (!(mapping->flags & WL_MAPPING_ANON)) {
      if (module->state == WL_MODULE_PENDING) return WL_END_PENDING;
      if (module->state == WL_MODULE_READY) ref = wl_find_rule_ref(&env, module, pc - mapping->bias);
    }
    if (ref == 0) {
      __u32 generated = (mapping->flags & WL_MAPPING_ANON) || wl_is_bare_page(&env, module, pc - mapping->bias);
      return wl_step_code(&env, walk->maps, walk->map_count, &s->cursor, generated);
    }
  }
  const unsigned char *chunk = wl_chunk(&env, ref);
  if (!chunk) return WL_END_INTERNAL;
  const struct wl_rule *rule = (const struct wl_rule *)(chunk + wl_offset(ref));
  entry->tag = wl_memo_tag(walk->space, pc);
  entry->value = wl_memo_value(walk->space, rule, ref, x_reg);
  return wl_apply(&env, &s->cursor, rule, x_reg, pc);
}

/* Up to WL_FRAMES_A_ROUND frames whose rules the memo knows, then one that needs more, if one does. */
#define WL_FRAMES_A_ROUND 8

static long wl_walk_frames(__u32 index, void *context) {
  struct wl_round *round = context;
  struct wl_scratch *s = round->scratch;
  struct wl_memo *m = round->memo;
  if (!s || !m) return 1;
  struct wl_walk *walk = &s->walk;
  struct wl_cursor *cursor = &s->cursor;
  struct wl_env env = {.window = &s->window};
  struct wl_fast fast = {
      .pc = cursor->regs[WL_X64_RIP],
      .sp = cursor->regs[WL_X64_RSP],
      .fp = cursor->regs[WL_X64_RBP],
      .valid = cursor->valid,
  };
  __u64 exact = cursor->exact;
  __u64 hash = walk->hash;
  __u32 n = walk->frames;
  __u32 space = walk->space;
  int status = WL_CONTINUE;
  int i;
  for (i = 0; i < WL_FRAMES_A_ROUND; i++) {
    if (n >= wl_max_user_frames) {
      status = WL_END_DEPTH;
      break;
    }
    __u64 frame = fast.pc | exact << 63;
    __u64 pc = fast.pc - 1 + exact;
    s->frames[(walk->first + n) & (WL_FRAME_SLOTS - 1)] = frame;
    hash = wl_mix(hash, frame);
    n++;
    exact = 0;
    struct wl_memo_entry *entry = &m->entries[wl_memo_slot(space, pc)];
    __u64 value = entry->value;
    if (wl_memo_hit(entry, wl_memo_tag(space, pc), space) && (value & WL_MEMO_PLAIN)) {
      status = wl_apply_plain(&env, cursor, &fast, value);
      if (status != WL_CONTINUE) break;
      continue;
    }
    /* The general way. The cursor is at this frame; `exact` as it was. */
    cursor->regs[WL_X64_RIP] = fast.pc;
    cursor->regs[WL_X64_RSP] = fast.sp;
    cursor->regs[WL_X64_RBP] = fast.fp;
    cursor->valid = fast.valid;
    cursor->exact = frame >> 63;
    walk->hash = hash;
    walk->frames = n;
    walk->memo_hits += i;
    status = wl_step_slow(s, m, pc);
    if (status == WL_CONTINUE) return 0;
    walk->end = status;
    return 1;
  }
  cursor->regs[WL_X64_RIP] = fast.pc;
  cursor->regs[WL_X64_RSP] = fast.sp;
  cursor->regs[WL_X64_RBP] = fast.fp;
  cursor->valid = fast.valid;
  cursor->exact = exact;
  walk->hash = hash;
  walk->frames = n;
  walk->memo_hits += i;
  if (status == WL_CONTINUE) return 0;
  walk->end = status;
  return 1;
}

/* One round as a global function: the verifier looks at it once, by itself, however often it is called. */
__noinline int wl_walk_round(__u32 cpu) {
  struct wl_round round = {};
  round.scratch = bpf_map_lookup_elem(&scratch, &cpu);
  round.memo = bpf_map_lookup_elem(&memo, &cpu);
  return wl_walk_frames(0, &round);
}

/* Unwinds the user stack from the cursor on. Kernels before 5.17 have no bpf_loop: the loader takes
 * windlass_sample_bounded, where the walk is a plain loop. The verifier goes through every round of it, so it has WL_BOUNDED_ROUNDS, after which the
 * stack ends as WL_END_DEPTH: 1,024 frames or more, by how many of them the memo knows. */
#define WL_BOUNDED_ROUNDS 1024

WL_INLINE void wl_walk_user(struct wl_scratch *s, struct wl_memo *m, __u32 cpu, int use_loop) {
  if (use_loop) {
    struct wl_round round = {.scratch = s, .memo = m};
    bpf_loop(WL_MAX_USER_FRAMES + 1, wl_walk_frames, &round, 0);
    return;
  }
  for (int i = 0; i < WL_BOUNDED_ROUNDS; i++) {
    if (wl_walk_round(cpu)) return;
  }
  s->walk.end = WL_END_DEPTH;
}

WL_INLINE void wl_load_registers(struct wl_cursor *cursor, const struct pt_regs___kernel *regs) {
  cursor->regs[0] = regs->ax;
  cursor->regs[1] = regs->dx;
  cursor->regs[2] = regs->cx;
  cursor->regs[3] = regs->bx;
  cursor->regs[4] = regs->si;
  cursor->regs[5] = regs->di;
  cursor->regs[6] = regs->bp;
  cursor->regs[7] = regs->sp;
  cursor->regs[8] = regs->r8;
  cursor->regs[9] = regs->r9;
  cursor->regs[10] = regs->r10;
  cursor->regs[11] = regs->r11;
  cursor->regs[12] = regs->r12;
  cursor->regs[13] = regs->r13;
  cursor->regs[14] = regs->r14;
  cursor->regs[15] = regs->r15;
  cursor->regs[16] = regs->ip;
  cursor->valid = (1u << 17) - 1;
  cursor->exact = 1;
  cursor->backward = 0;
}

#define WL_USER32_CS 0x23 /* code of 32-bit programs: not unwound */

/* Emits the stack in scratch, or counts it if it was seen before. */
WL_INLINE void wl_emit_stack(struct wl_scratch *s, struct wl_cpu_stats *st, __u64 hash, __u32 user_frames,
                             __u32 kernel_frames) {
  struct wl_stack_key key = {.hash = hash, .tgid = s->event.head.tgid, .tid = s->event.head.tid};
  __u64 *count = bpf_map_lookup_elem(&counts, &key);
  if (count) {
    __sync_fetch_and_add(count, 1);
    st->counted++;
    return;
  }
  wl_stamp(&s->event.head);
  s->event.head.type = WL_EVENT_STACK;
  s->event.hash = hash;
  s->event.user_frames = user_frames;
  s->event.kernel_frames = kernel_frames;
  __u64 size = sizeof s->event + (user_frames + kernel_frames) * 8;
  if (size > sizeof s->event + sizeof s->frames) return;
  if (bpf_ringbuf_output(&events, &s->event, size, wl_wakeup())) {
    st->lost++;
    return;
  }
  st->stack_events++;
  __u64 zero = 0;
  bpf_map_update_elem(&counts, &key, &zero, BPF_NOEXIST);
}

/* The mapping set to unwind with, or 0: none known, or one from before an exec or an unmapping. */
WL_INLINE const struct wl_process *wl_current_process(const struct wl_env *env, __u32 tgid) {
  const struct wl_process *process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process) return 0;
  const __u64 *epoch = bpf_map_lookup_elem(&epochs, &tgid);
  if (process->epoch != (epoch ? *epoch : 0)) return 0;
  const unsigned char *chunk = wl_chunk(env, process->maps);
  if (!chunk) return 0;
  __u32 at = wl_offset(process->maps - (sizeof(struct wl_maps_head) >> WL_REF_SHIFT));
  if (((const struct wl_maps_head *)(chunk + at))->space != process->space) return 0;
  return process;
}

WL_INLINE int wl_wants_raw(__u32 end) {
  return end == WL_END_NO_PROCESS || end == WL_END_NO_MAPPING || end == WL_END_PENDING || end == WL_END_NO_ROW ||
         end == WL_END_UNSUPPORTED_EXPRESSION || end == WL_END_REGISTER_LOST || end == WL_END_BAD_FRAME_POINTER;
}

WL_INLINE int wl_sample(struct bpf_perf_event_data *ctx, int use_loop) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wl_scratch *s = bpf_map_lookup_elem(&scratch, &cpu);
  struct wl_memo *m = bpf_map_lookup_elem(&memo, &cpu);
  struct wl_cpu_stats *st = bpf_map_lookup_elem(&stats, &cpu);
  if (!s || !m || !st) return 0;
  __u64 ids = bpf_get_current_pid_tgid();
  __u32 tgid = ids >> 32;
  st->samples++;
  if ((__u32)ids == 0 || (wl_filter && !bpf_map_lookup_elem(&targets, &tgid))) {
    st->idle++;
    return 0;
  }
  struct wl_env env = {};
  struct wl_walk *walk = &s->walk;
  *walk = (struct wl_walk){.hash = 0x57494e444c415353ull, .end = WL_END_INTERNAL};
  s->event.head.tgid = tgid;
  s->event.head.tid = (__u32)ids;
  s->event.head.cpu = cpu;

  __u32 kernel_frames = 0;
  if ((__s64)ctx->regs.rip < 0) {
    long bytes = bpf_get_stack(ctx, s->frames, WL_MAX_KERNEL_FRAMES * 8, 0);
    if (bytes > 0) kernel_frames = (__u32)bytes / 8;
    if (kernel_frames > wl_max_kernel_frames) kernel_frames = wl_max_kernel_frames;
    for (__u32 i = 0; i < WL_MAX_KERNEL_FRAMES; i++) {
      if (i >= kernel_frames) break;
      walk->hash = wl_mix(walk->hash, s->frames[i]);
    }
  }
  /* Through memory: the verifier forgets which round of the loop it left by, and follows the rest once, not 127 times. */
  s->event.kernel_frames = kernel_frames;
  kernel_frames = *(volatile __u8 *)&s->event.kernel_frames;

  struct task_struct *task = bpf_get_current_task_btf();
  struct pt_regs___kernel *regs = (struct pt_regs___kernel *)bpf_task_pt_regs(task);
  walk->first = kernel_frames;
  if ((task->flags & PF_KTHREAD) || !task->mm || BPF_CORE_READ_BITFIELD(task, in_execve)) {
    walk->end = WL_END_KERNEL_ONLY; /* no user stack: none of its own, or taken down already (exit), or half built */
  } else if (regs->cs == WL_USER32_CS) {
    walk->end = WL_END_NO_ROW;
  } else {
    wl_load_registers(&s->cursor, regs);
    const struct wl_process *process = wl_current_process(&env, tgid);
    if (process) {
      walk->space = process->space;
      walk->maps = process->maps;
      walk->map_count = process->map_count;
      s->window.base = 0;
      s->window.size = 0;
      s->window.served = WL_WINDOW_SERVED;
      s->window.wanted = WL_WINDOW_SERVED;
      wl_walk_user(s, m, cpu, use_loop);
    } else {
      walk->end = WL_END_NO_PROCESS;
    }
    if (wl_wants_raw(walk->end)) {
      __u64 stop = walk->frames ? s->cursor.regs[WL_X64_RSP] : 0;
      wl_load_registers(&s->cursor, regs);
      s->event.space = walk->space;
      if (wl_emit_raw(s, st, task, stop, kernel_frames)) {
        st->ends[walk->end < WL_END_COUNT ? walk->end : WL_END_INTERNAL]++;
        return 0;
      }
    }
  }
  __u32 end = walk->end;
  if (end >= WL_END_COUNT) end = WL_END_INTERNAL;
  st->ends[end]++;
  st->user_frames += walk->frames;
  st->memo_hits += walk->memo_hits;
  s->event.space = walk->space;
  s->event.end = end;
  __u64 hash = wl_mix(walk->hash, ((__u64)walk->space << 32) | (kernel_frames << 8) | end);
  wl_emit_stack(s, st, hash, walk->frames, kernel_frames);
  return 0;
}

SEC("perf_event")
int windlass_sample(struct bpf_perf_event_data *ctx) {
  return wl_sample(ctx, 1);
}

SEC("perf_event")
int windlass_sample_bounded(struct bpf_perf_event_data *ctx) {
  return wl_sample(ctx, 0);
}
