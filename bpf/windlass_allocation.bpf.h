/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Allocations of processes that run already. Their allocator tells of samples by static probes (otel_memory), or its
 * functions are probed and each call comes here.
 *
 * Then each byte is sampled with the same small chance: the distance between two samples is distributed exponentially.
 * A CPU counts down the bytes that are allocated on it. The exponential distribution has no memory, so it does not
 * matter which threads they are of.
 */
#ifndef WINDLASS_ALLOCATION_BPF_H
#define WINDLASS_ALLOCATION_BPF_H

#define WL_REGISTERS_SIZE 512u /* A power of two: offsets in pt_regs are smaller. */
#ifdef WL_TARGET_A64
#define WL_REGISTERS_PC 256
#define WL_REGISTERS_RETURN 240 /* x30 */
#else
#define WL_REGISTERS_PC 128
#define WL_REGISTERS_SP 152
#endif

WL_INLINE __u64 wl_register_at(const void* registers, __u32 offset) {
  __u64 value = 0;
  bpf_probe_read_kernel(&value, sizeof value, registers + offset);
  return value;
}

WL_INLINE __u64 wl_operand_value(const void* registers, const struct wl_operand* operand) {
  if (operand->kind == WL_OPERAND_NONE) return 0;
  __u64 value = operand->offset;
  if (operand->kind != WL_OPERAND_CONSTANT)
    value = wl_register_at(registers, operand->registers_at & (WL_REGISTERS_SIZE - 1));
  if (operand->kind == WL_OPERAND_MEMORY) {
    const void* at = (const void*)(value + operand->offset);
    if (bpf_probe_read_user(&value, sizeof value, at)) return 0;
  }
  __u32 unused = (64 - operand->bits) & 63;
  value <<= unused;
  return operand->is_signed ? (__u64)((__s64)value >> unused) : value >> unused;
}

/* Was the function called by one that allocates? */
WL_INLINE int wl_is_inner_call(const void* registers, const struct wl_allocation_place* place) {
  __u64 caller = 0;
#ifdef WL_TARGET_A64
  caller = wl_register_at(registers, WL_REGISTERS_RETURN);
#else
  bpf_probe_read_user(&caller, sizeof caller, (const void*)wl_register_at(registers, WL_REGISTERS_SP));
#endif
  caller += place->begin - wl_register_at(registers, WL_REGISTERS_PC);
  for (__u32 i = 0; i < WL_MAX_ALLOCATORS; i++) {
    if (i >= place->ranges) break;
    __u32 number = place->first_range + i;
    const struct wl_code_range* range = bpf_map_lookup_elem(&allocators, &number);
    if (range && caller - range->begin < range->end - range->begin) return 1;
  }
  return 0;
}

/* log2(number) as 8.24, of a number above 0: bit by bit. */
WL_INLINE __u64 wl_log2(__u32 number) {
  __u64 result = 31u << 24, mantissa = number;
  for (__u32 i = 0; i < 32; i++) {
    if (mantissa >> 31) break;
    mantissa <<= 1;
    result -= 1u << 24;
  }
  for (__u32 bit = 1u << 23; bit; bit >>= 1) {
    mantissa = mantissa * mantissa >> 31;
    if (!(mantissa >> 32)) continue;
    mantissa >>= 1;
    result += bit;
  }
  return result;
}

/* Bytes until the next sample: -ln(u) * period, u in (0, 1]. */
WL_GLOBAL __u64 wl_next_distance(void) {
  __u32 random = bpf_get_prandom_u32();
  __u64 bits = random ? (32ull << 24) - wl_log2(random) : 0;
  return (bits * wl_distance_factor >> wl_distance_shift) + 1;
}

/* Is a call for so many bytes a sample? */
WL_GLOBAL int wl_is_chosen(__u64 size) {
  if (wl_allocation_period <= 1) return 1;
  __u32 zero = 0;
  struct wl_allocation_state* state = bpf_map_lookup_elem(&allocation_states, &zero);
  if (!state) return 0;
  if (!state->has_begun) {
    state->has_begun = 1;
    state->left = wl_next_distance();
  }
  __s64 before = __sync_fetch_and_add(&state->left, -(__s64)size);
  if (before < 0 || (__u64)before >= size) return 0;
  state->left = wl_next_distance();
  return 1;
}

/* The bytes that a sample of this size stands for: size / (1 - exp(-size / period)). */
WL_GLOBAL __u64 wl_weight_of(__u64 size) {
  __u64 period = wl_allocation_period;
  if (period <= 1 || size >= period * WL_WEIGHT_END) return size;
  __u64 place = (size << 16) / period;
  __u32 step = place >> 10;
  if (step >= WL_WEIGHTS - 1) return size;
  __u64 low = wl_allocation_weights[step], high = wl_allocation_weights[step + 1];
  return period * (low + ((high - low) * (place & 1023) >> 10)) >> 24;
}

/* What the sample stands for. 0 if the call is none. */
WL_INLINE int wl_take_allocation(void* ctx, const struct wl_allocation_place* place, struct wl_block* block,
                                 __u64* address) {
  __u64 size = wl_operand_value(ctx, &place->size);
  *address = wl_operand_value(ctx, &place->block);
  if (place->kind == WL_ALLOCATION_SAMPLE) {
    block->bytes = wl_operand_value(ctx, &place->weight);
  } else {
    if (place->times.kind) size *= wl_operand_value(ctx, &place->times);
    if (place->reallocates && (*address ? !size : place->passes_null)) return 0;
    if (wl_is_inner_call(ctx, place) || size >> 60 || !wl_is_chosen(size)) return 0;
    block->bytes = wl_weight_of(size);
    *address = 0;
  }
  block->count = 1;
  if (!size) return 1;
  /* Rounded by chance: on average it is what it was. */
  __u64 random = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
  block->count = block->bytes / size + (random % size < block->bytes % size);
  return 1;
}

WL_INLINE void wl_add_to_count(const struct wl_stack_key* key, __u64 count, __u64 bytes) {
  struct wl_count first = {};
  bpf_map_update_elem(&counts, key, &first, BPF_NOEXIST);
  struct wl_count* sum = bpf_map_lookup_elem(&counts, key);
  if (!sum) return;
  __sync_fetch_and_add(&sum->count, count);
  __sync_fetch_and_add(&sum->value, bytes);
}

/* Takes the block out of those in use. 0 if it is none of them. */
WL_GLOBAL int wl_end_block(__u64 address, __u32 tgid) {
  struct wl_block_key key = {.address = address, .tgid = tgid};
  const struct wl_block* found = bpf_map_lookup_elem(&sampled_blocks, &key);
  if (!found) return 0;
  struct wl_block block = *found;
  if (bpf_map_delete_elem(&sampled_blocks, &key)) return 0;
  wl_add_to_count(&block.key, -block.count, -block.bytes);
  return 1;
}

SEC("kprobe")
int windlass_allocation(struct pt_regs* ctx) {
  __u32 number = bpf_get_attach_cookie(ctx);
  const struct wl_allocation_place* place = bpf_map_lookup_elem(&allocation_places, &number);
  if (!place) return 0;
  struct wl_block block = {};
  struct wl_block_key key = {};
  if (!wl_take_allocation(ctx, place, &block, &key.address)) return 0;
  struct wl_sample sample;
  if (!wl_begin_sample(&sample, wl_allocation_event)) return 0;
  sample.s->event.head.reason = WL_NO_WAIT;
  sample.s->repeats = 0;
  wl_finish_sample(&sample);
  block.key = sample.s->key;
  wl_give_back(sample.s);
  wl_add_to_count(&block.key, block.count, block.bytes);
  if (!key.address) return 0;
  key.tgid = block.key.tgid;
  wl_end_block(key.address, key.tgid); /* Its free was not seen. */
  block.key.hash ^= WL_IN_USE_BIT;
  if (bpf_map_update_elem(&sampled_blocks, &key, &block, BPF_ANY))
    __sync_fetch_and_add(&sample.st->unfollowed, 1); /* counts as freed at once */
  else
    wl_add_to_count(&block.key, block.count, block.bytes);
  return 0;
}

SEC("kprobe")
int windlass_free(struct pt_regs* ctx) {
  __u32 number = bpf_get_attach_cookie(ctx);
  const struct wl_allocation_place* place = bpf_map_lookup_elem(&allocation_places, &number);
  if (place) wl_end_block(wl_operand_value(ctx, &place->block), wl_current_ids() >> 32);
  return 0;
}

#endif
