/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * A sample that the kernel side cannot finish goes to the agent with its registers and its raw stack.
 */
#ifndef WINDLASS_RAW_BPF_H
#define WINDLASS_RAW_BPF_H

#define WL_RAW_WINDOW_SHIFT 27 /* 134 ms: the window of time the budget is for */
#define WL_PAGE 4096u

/* Copies one page, or what of it is wanted. 1 at the first that cannot be read. A global function, which the verifier
 * looks at once and not in every round; the progress is in the map value. */
__noinline int wl_copy_page(__u32 cpu) {
  struct wl_raw_scratch *to = bpf_map_lookup_elem(&raw_scratch, &cpu);
  if (!to) return 1;
  __u64 address = to->copy_address;
  __u32 offset = to->copy_offset, end = to->copy_end;
  if (offset >= end || offset >= WL_RAW_BYTES) return 1;
  __u32 size = WL_PAGE - ((__u32)address & (WL_PAGE - 1));
  if (size > end - offset) size = end - offset;
  WL_OPAQUE(size);
  if (size > WL_PAGE) return 1;
  if (bpf_probe_read_user(&to->bytes[offset], size, (const void *)address)) return 1;
  to->copy_offset = offset + size;
  to->copy_address = address + size;
  return 0;
}

/* 0 if the bytes are within this window's budget. */
WL_INLINE int wl_spend(__u64 now, __u32 size) {
  __u32 zero = 0;
  struct wl_budget *b = bpf_map_lookup_elem(&budget, &zero);
  if (!b) return 1;
  __u64 window = now >> WL_RAW_WINDOW_SHIFT;
  if (b->window != window) { /* two CPUs may both reset: a little over budget, once */
    b->window = window;
    b->bytes = 0;
  }
  if (b->bytes + size > wl_raw_bytes_per_window) return 1;
  __sync_fetch_and_add(&b->bytes, size);
  return 0;
}

/* Copies from raw->copy_address on, at most up to copy_end. Where it got to. */
WL_INLINE __u32 wl_copy_stack(struct wl_raw_scratch *raw, __u32 cpu, __u32 limit) {
  for (__u32 i = 0; i < limit / WL_PAGE + 1; i++) {
    if (wl_copy_page(cpu)) break;
  }
  return *(volatile __u32 *)&raw->copy_offset;
}

/* 1 if the sample is done with (sent or lost), 0 if the budget does not allow it. stop: sp of the frame that the walk
 * could not leave, 0 if there was none. */
static __noinline int wl_emit_raw(struct wl_scratch *s, struct wl_cpu_stats *st, struct task_struct *task, __u64 stop,
                                  __u32 kernel_frames) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct wl_raw_scratch *raw = bpf_map_lookup_elem(&raw_scratch, &cpu);
  if (!raw || !s || !st) return 0;
  __u64 sp = s->cursor.regs[WL_X64_RSP];
  __u64 pc = s->cursor.regs[WL_X64_RIP];
  wl_stamp(&s->event.head);
  if (wl_spend(s->event.head.time, 4096)) {
    st->raw_refused++;
    return 0;
  }
  raw->event.head = s->event.head;
  raw->event.head.type = WL_EVENT_RAW;
  for (int i = 0; i < 17; i++) raw->event.regs[i] = s->cursor.regs[i];
  raw->event.reason = s->walk.end;
  raw->event.space = s->event.space;
  if (kernel_frames > WL_MAX_KERNEL_FRAMES) kernel_frames = WL_MAX_KERNEL_FRAMES;
  raw->event.kernel_frames = kernel_frames;
  WL_OPAQUE(kernel_frames);
  if (kernel_frames > WL_MAX_KERNEL_FRAMES) return 0;
  bpf_probe_read_kernel(raw->bytes, kernel_frames * 8, s->frames);

  __u32 offset = kernel_frames * 8;
  __u32 code = WL_RAW_CODE;
  __u32 before = WL_RAW_CODE_BEFORE;
  if (bpf_probe_read_user(&raw->bytes[offset], WL_RAW_CODE, (const void *)(pc - WL_RAW_CODE_BEFORE))) {
    before = 0; /* the first bytes of a mapping, or the last */
    code = WL_RAW_CODE_BEFORE;
    if (bpf_probe_read_user(&raw->bytes[offset], WL_RAW_CODE_BEFORE, (const void *)pc)) code = 0;
  }
  raw->event.code_size = code;
  raw->event.code_before = before;
  offset += code;

  __u64 limit = wl_max_raw_stack;
  __u64 top = task->mm->start_stack;
  if (sp < top && top - sp < limit) limit = top - sp;
  /* The C libraries put a thread's control block, which fs points to, at the top of its stack. */
  top = task->thread.fsbase;
  if (sp < top && top - sp < limit) limit = top - sp;
  int two = stop != 0 && stop - sp >= limit;
  if (two && limit > WL_MAX_RAW_PIECE) limit = WL_MAX_RAW_PIECE;
  raw->copy_address = sp;
  raw->copy_offset = offset;
  raw->copy_end = offset + (__u32)limit;
  __u32 end = wl_copy_stack(raw, cpu, WL_MAX_RAW_STACK);
  raw->event.stack_size = end - offset;
  raw->event.second_address = stop;
  raw->event.second_size = 0;
  if (two) {
    limit = wl_max_raw_stack;
    if (limit > WL_MAX_RAW_PIECE) limit = WL_MAX_RAW_PIECE;
    raw->copy_address = stop;
    raw->copy_end = end + (__u32)limit;
    offset = end;
    end = wl_copy_stack(raw, cpu, WL_MAX_RAW_PIECE);
    raw->event.second_size = end - offset;
  }
  if (end > WL_RAW_BYTES) return 0;
  __u32 size = sizeof raw->event + end;
  wl_spend(s->event.head.time, size);
  if (bpf_ringbuf_output(&events, raw, size, wl_wakeup())) {
    st->lost++;
    return 1;
  }
  st->raw_events++;
  st->raw_bytes += size;
  return 1;
}

#endif
