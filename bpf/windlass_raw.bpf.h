/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * A sample that the kernel side cannot finish goes to the agent with its registers and its raw stack.
 */
#ifndef WINDLASS_RAW_BPF_H
#define WINDLASS_RAW_BPF_H

#include "windlass_event.bpf.h"
#include "windlass_wine_layout.h"

#define WL_RAW_WINDOW_SHIFT 27 /* 134 ms: the window of time the budget is for */

/* Copies page n, or the part of it that is needed. A page that cannot be read is left out. Returns 1 if there is no
 * more to copy. The progress is in the map value. */
WL_GLOBAL int wl_copy_page(struct wl_raw_scratch* to, __u32 n) {
  if (!to) return 1;
  __u64 address = to->copy_address, limit = to->copy_limit;
  __u32 offset = to->copy_offset, end = to->copy_end;
  if (address >= limit || offset >= end || offset >= WL_RAW_BYTES) return 1;
  __u32 size = WL_RAW_PAGE - ((__u32)address & (WL_RAW_PAGE - 1));
  to->copy_address = address + size;
  if (size > limit - address) size = limit - address;
  if (size > end - offset) size = end - offset;
  WL_OPAQUE(size);
  if (size > WL_RAW_PAGE) return 1;
  if (bpf_probe_read_user(&to->bytes[offset], size, (const void*)address)) return 0;
  to->copy_offset = offset + size;
  to->copy_pages |= 1ull << (n & 63);
  return 0;
}

/* Copies the stack in [from, limit) behind what is there, at most `most` bytes. How many it were; which pages is in
 * raw->copy_pages. */
WL_GLOBAL __u32 wl_copy_stack(struct wl_raw_scratch* raw, __u64 from, __u64 limit, __u32 most) {
  if (!raw) return 0;
  __u32 begin = raw->copy_offset;
  raw->copy_address = from;
  raw->copy_limit = limit;
  raw->copy_pages = 0;
  raw->copy_end = begin + most;
  for (__u32 n = 0; n < WL_MAX_RAW_PAGES; n++) {
    if (wl_copy_page(raw, n)) break;
  }
  return raw->copy_offset - begin;
}

/* This window's budget. */
WL_INLINE struct wl_budget* wl_budget_of(__u64 now) {
  __u32 zero = 0;
  struct wl_budget* b = bpf_map_lookup_elem(&budget, &zero);
  if (!b) return 0;
  __u64 window = now >> WL_RAW_WINDOW_SHIFT;
  if (b->window != window) { /* two CPUs may both reset: a little over budget, once */
    b->window = window;
    b->bytes = 0;
  }
  return b;
}

/* How often the copy of a stack is halved. The less is left of this window's budget, the smaller the copies are: most
 * stacks are short, and each sample has its innermost frames. -1: nothing is left. */
WL_GLOBAL int wl_copy_halvings(__u64 now) {
  const struct wl_budget* b = wl_budget_of(now);
  if (!b || b->bytes + WL_RAW_PAGE > wl_raw_bytes_per_window) return -1;
  __u64 left = wl_raw_bytes_per_window - b->bytes;
  if (left >= wl_raw_bytes_per_window / 2) return 0;
  if (left >= wl_raw_bytes_per_window / 4) return 1;
  return left >= wl_raw_bytes_per_window / 8 ? 2 : 3;
}

WL_GLOBAL int wl_spend(__u64 now, __u32 size) {
  struct wl_budget* b = wl_budget_of(now);
  if (b) __sync_fetch_and_add(&b->bytes, size);
  return 0;
}

/* The code around the pc, behind the kernel's frames. */
WL_GLOBAL int wl_copy_code(struct wl_raw_scratch* raw, __u64 pc) {
  if (!raw) return 1;
  __u32 offset = raw->copy_offset;
  if (offset > (WL_MAX_KERNEL_FRAMES + 1) * 8) return 1;
  raw->event.code_size = WL_RAW_CODE;
  raw->event.code_before = WL_RAW_CODE_BEFORE;
  if (bpf_probe_read_user(&raw->bytes[offset], WL_RAW_CODE, (const void*)(pc - WL_RAW_CODE_BEFORE))) {
    raw->event.code_before = 0; /* the first bytes of a mapping, or the last */
    raw->event.code_size = WL_RAW_CODE_BEFORE;
    if (bpf_probe_read_user(&raw->bytes[offset], WL_RAW_CODE_BEFORE, (const void*)pc)) raw->event.code_size = 0;
  }
  raw->copy_offset = offset + raw->event.code_size;
  return 0;
}

/* Where the stack that sp is in ends, as far as is known. */
WL_INLINE __u64 wl_stack_limit(const struct wl_scratch* s, __u64 sp) {
  __u64 limit = ~0ull;
  if (sp < s->stack_top) limit = s->stack_top + WL_ARGUMENTS;
  if (sp < s->thread_block && s->thread_block < limit) limit = s->thread_block;
  return limit;
}

/* The return addresses that the kernel has put away, the innermost ones (wl_probed_pc()). Returns what is in their
 * places; 0: there are none. */
WL_GLOBAL __u64 wl_take_returns(struct wl_unwind* u) {
  if (!u) return 0;
  struct task_struct* task = bpf_get_current_task_btf();
  if (!bpf_core_field_exists(task->utask)) return 0;
  struct uprobe_task* thread = task->utask;
  if (!thread) return 0;
  struct return_instance* at = BPF_CORE_READ(thread, return_instances);
  if (!at) return 0;
  for (__u32 i = 0; i < WL_PROBED_RETURNS && at; i++) {
    u->words[WL_PROBED_RETURN + i].address = BPF_CORE_READ(at, stack);
    u->words[WL_PROBED_RETURN + i].value = BPF_CORE_READ(at, orig_ret_vaddr);
    at = BPF_CORE_READ(at, next);
  }
  return BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
}

/* Appends the functions that the interpreter runs to the event. */
WL_GLOBAL int wl_copy_interpreted(struct wl_raw_scratch* raw, struct wl_scratch* s) {
  if (!raw || !s) return 1;
  __u32 count = s->unwind.interpreted.count;
  raw->event.interpreted_frames = 0;
  if (count == 0 || count > WL_MAX_RAW_INTERPRETED_FRAMES) return 0;
  __u32 offset = raw->copy_offset, from = s->unwind.first + s->unwind.frames;
  __u32 size = count * sizeof(struct wl_interpreted_frame);
  WL_OPAQUE(size);
  WL_OPAQUE(from);
  if (offset > WL_RAW_BYTES || size > WL_RAW_INTERPRETED_BYTES || from > WL_MAX_USER_FRAMES + WL_MAX_KERNEL_FRAMES)
    return 1;
  bpf_probe_read_kernel(&raw->bytes[offset], size, &s->frames[from]);
  raw->event.interpreted_frames = count;
  raw->copy_offset = offset + size;
  return 0;
}

/* The end of the part of a stack that is needed, for the stack of `sp`. The thread's own stack is needed up to
 * u->left_at, if the thread has left it for another stack. The other stack is needed to its end, u->kept_end. */
WL_INLINE __u64 wl_wanted_limit(const struct wl_scratch* s, __u64 sp) {
  const struct wl_unwind* u = &s->unwind;
  __u64 limit = wl_stack_limit(s, sp), left = u->left_at;
  if (u->kept_sp && sp >= u->kept_sp - WL_MAX_RAW_STACK && sp < u->kept_end) left = u->kept_end;
  return sp < left && left < limit ? left : limit;
}

/* The end of the stack that the thread began on, if it has left that stack for another one: its first functions still
 * wait there. For example, SBCL runs Lisp on a stack of its own in the main thread, and OCaml 5 OCaml in a Windows
 * program. 0: it has not, or that is not known. */
WL_GLOBAL __u64 wl_left_first_stack(struct wl_scratch* s, __u64 sp) {
  if (!s) return 0;
#ifndef WL_TARGET_A64
  __u64* stack = s->unwind.room.pair; /* base and limit: the end and the begin */
  if (s->unwind.gs_base && !bpf_probe_read_user(stack, 16, (const void*)(s->unwind.gs_base + WL_TEB_STACK)) &&
      stack[1] < stack[0])
    return sp < stack[0] && sp >= stack[1] - WL_TEB_STACK_GROWTH ? 0 : stack[0];
#endif
  int far = s->event.head.tid == s->event.head.tgid && s->stack_top - sp > WL_FIRST_STACK_FAR;
  return far ? s->stack_top + WL_ARGUMENTS : 0;
}

/* Sends the sample in `s`, whose cursor is at the first frame again, as a raw event. `stop` is the sp of the frame that
 * the walk could not leave. For a signal handler with a stack of its own, it is the begin of the stack that the handler
 * was called from. 0: neither. Returns 1 if the sample is done (sent or lost), 0 if the budget does not allow it. */
WL_GLOBAL int wl_emit_raw(struct wl_scratch* s, struct wl_cpu_stats* st, __u64 stop) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wl_raw_scratch* raw = bpf_map_lookup_elem(&raw_scratch, &cpu);
  if (!raw || !s || !st) return 0;
  const struct wl_cursor* cursor = &s->unwind.cursor;
  __u64 sp = cursor->regs[WL_SP];
  wl_stamp(&s->event.head);
  int halvings = wl_copy_halvings(s->event.head.time);
  if (halvings < 0) {
    st->raw_refused += wl_ticks_of(s);
    return 0;
  }
  __u32 kernel_frames = s->event.kernel_frames;
  if (kernel_frames > WL_MAX_KERNEL_FRAMES) return 0;
  raw->event.head = s->event.head;
  raw->event.head.type = WL_EVENT_RAW;
  raw->event.machine = s->machine;
  __builtin_memcpy(raw->event.regs, cursor->regs, sizeof cursor->regs);
  raw->event.reason = s->unwind.end;
  raw->event.space = s->unwind.space;
  raw->event.epoch = s->unwind.epoch;
  raw->event.kernel_frames = kernel_frames;
  raw->event.gs_base = s->unwind.gs_base;
  raw->event.thread_pointer = s->unwind.thread_pointer;
  raw->event.probed_pc = wl_take_returns(&s->unwind);
  __builtin_memcpy(raw->event.words, s->unwind.words, sizeof raw->event.words);
  raw->event.teb_frame = 0;
  if (s->unwind.gs_base)
    bpf_probe_read_user(&raw->event.teb_frame, 8, (const void*)(s->unwind.gs_base + WL_WINE_TEB_FRAME));
  bpf_probe_read_kernel(raw->bytes, kernel_frames * 8, s->frames);
  raw->copy_offset = kernel_frames * 8;
  if (wl_copy_code(raw, cursor->regs[WL_PC])) return 0;

  __u64 limit = wl_wanted_limit(s, sp);
  __u32 most = wl_max_raw_stack >> (halvings & 3), piece = WL_MAX_RAW_PIECE >> (halvings & 3);
  int two = stop != 0 && (stop - sp >= most || stop >= limit);
  __u64 second_end = s->unwind.kept_end;
  __u64 first_end = !two && most >= 4 * WL_FIRST_STACK ? wl_left_first_stack(s, sp) : 0;
  if (two) {
    if (most > piece) most = piece;
  } else if (first_end) {
    two = 1;
    stop = first_end - WL_FIRST_STACK;
    second_end = first_end;
    most -= 2 * WL_FIRST_STACK;
  }
  raw->event.stack_address = sp - WL_RED_ZONE;
  raw->event.stack_size = wl_copy_stack(raw, sp - WL_RED_ZONE, limit, most);
  raw->event.stack_pages = raw->copy_pages;
  raw->event.second_address = stop;
  raw->event.second_size = 0;
  raw->event.second_pages = 0;
  if (two) {
    raw->event.second_size = wl_copy_stack(raw, stop, second_end, most);
    raw->event.second_pages = raw->copy_pages;
  }
  raw->event.hash = 0;
  if (!s->repeats) {
    s->key.tgid = s->event.head.tgid;
    s->key.tid = s->event.head.tid;
    s->key.hash = raw->event.hash = wl_mix(s->event.head.time, s->event.head.tid);
  }
  if (wl_copy_interpreted(raw, s)) return 0;
  __u32 end = raw->copy_offset;
  if (end > WL_RAW_BYTES + WL_RAW_INTERPRETED_BYTES) return 0;
  __u32 size = sizeof raw->event + end;
  wl_spend(s->event.head.time, size);
  if (bpf_ringbuf_output(&events, raw, size, wl_wakeup())) {
    st->lost += wl_ticks_of(s);
    return 1;
  }
  st->raw_events += wl_ticks_of(s);
  st->raw_bytes += size;
  return 1;
}

#endif
