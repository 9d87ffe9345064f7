/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * AArch64 code without a row (linkage tables, start-up code, assembly without CFI): followed to its return.
 *
 * Instructions have one size, and few forms change sp, x29 and x30. So the code from the pc on is run for these three
 * registers until it returns. It is run past conditional branches and calls, along unconditional branches, and stores
 * of the pair are remembered. At the return, x30 is the return address, and sp is the caller's.
 *
 * Behind a call, the code may not be the code that runs on, since the callee may not return. Then the return address
 * must also be in the frame record that the code made, or that x29 points at. In code that has called, the instructions
 * before may show how the function made that record. The record then leads on, even from functions that never return.
 * Else the walk ends as WL_END_BAD_FRAME_POINTER, and the sample goes to user space.
 *
 * Encodings: Arm Architecture Reference Manual, C4.1.
 */
#ifndef WINDLASS_CODE_A64_H
#define WINDLASS_CODE_A64_H

#include "windlass_lookup.h"
#include "windlass_step.h"

#define WL_CODE_INSTRUCTIONS 64 /* run at most */
#define WL_CODE_BACK 64         /* looked at before a call, for the function's prologue */

#define WL_A64_PUSH_X16_X30 0xa9bf7bf0u /* stp x16, x30, [sp, #-16]!: the linkage table's head */

enum wl_code_status { WL_CODE_ON, WL_CODE_RETURNS, WL_CODE_GIVE_UP };

WL_INLINE __s64 wl_code_signed(__u32 word, __u32 low, __u32 bits) {
  return (__s64)((__u64)word << (64 - low - bits)) >> (64 - bits);
}

/* `reg` is loaded from `at`. */
WL_INLINE int wl_code_load(const struct wl_env* env, struct wl_code_run* run, __u32 reg, __u64 at) {
  __u8 known = 1;
  if (reg != WL_A64_X29 && reg != WL_A64_X30) return WL_CODE_ON;
  if (run->record != 0 && at == run->record) {
    run->value = run->record_fp;
    known = run->record_fp_known;
  } else if (run->record != 0 && at == run->record + 8) {
    run->value = run->record_lr;
    known = run->record_lr_known;
  } else if (wl_read(env, &run->value, 8, at)) {
    return WL_CODE_GIVE_UP;
  }
  if (reg == WL_A64_X29) {
    run->fp = run->value;
    run->fp_known = known;
  } else {
    run->lr = run->value;
    run->lr_known = known;
  }
  return WL_CODE_ON;
}

/* A load or store of one register or a pair through sp: `address` is where, `end` what sp becomes. */
WL_INLINE int wl_code_access(const struct wl_env* env, struct wl_code_run* run, __u32 word, int pair, int load,
                             int general, __u64 address, __u64 end) {
  __u32 first = word & 31, second = word >> 10 & 31;
  if (general && load) {
    __u64 slot = first == WL_A64_X30 ? address : address + 8;
    if (first == WL_A64_X30 || (pair && second == WL_A64_X30))
      run->lr_framed = (run->record != 0 && run->record_lr_known && slot == run->record + 8) ||
                       (run->fp_known && slot == run->fp + 8);
    int status = wl_code_load(env, run, first, address);
    if (status == WL_CODE_ON && pair) status = wl_code_load(env, run, second, address + 8);
    if (status != WL_CODE_ON) return status;
  } else if (general && first == WL_A64_X29 && pair && second == WL_A64_X30) {
    run->record = address;
    run->record_fp = run->fp;
    run->record_lr = run->lr;
    run->record_fp_known = run->fp_known;
    run->record_lr_known = run->lr_known;
  } else if (general && (first == WL_A64_X30 || (pair && second == WL_A64_X30))) {
    run->record = address + (first == WL_A64_X30 ? 0 : 8) - 8; /* x30 alone, or with another register */
    run->record_fp_known = 0;
    run->record_lr = run->lr;
    run->record_lr_known = run->lr_known;
  }
  run->sp = end;
  return WL_CODE_ON;
}

/* add and sub with an immediate; mov from and to sp is one of them. */
WL_INLINE int wl_code_add(struct wl_code_run* run, __u32 word) {
  __u32 to = word & 31, from = word >> 5 & 31;
  __u64 value = (__u64)(word >> 10 & 0xfff) << ((word >> 22 & 1) * 12);
  __u64 base = from == 31 ? run->sp : run->fp;
  if (to != 31 && to != WL_A64_X29 && to != WL_A64_X30) return WL_CODE_ON;
  int known = from == 31 || (from == WL_A64_X29 && run->fp_known);
  value = word >> 30 & 1 ? base - value : base + value;
  if (to == WL_A64_X30) {
    run->lr_known = 0;
  } else if (to == WL_A64_X29) {
    run->fp = value;
    run->fp_known = known;
  } else {
    if (!known) return WL_CODE_GIVE_UP;
    run->sp = value;
  }
  return WL_CODE_ON;
}

WL_INLINE int wl_code_is_call(__u32 word) { /* bl, blr, blraa and the like */
  return word >> 26 == 0x25 || (word & 0xfefff000u) == 0xd63f0000u;
}

/* Runs the instruction at run->pc, run->word, for sp, x29 and x30. */
WL_INLINE int wl_code_execute(const struct wl_env* env, struct wl_code_run* run) {
  __u32 word = run->word;
  __u32 rd = word & 31, rn = word >> 5 & 31;
  if (word == 0xd65f03c0u || word == 0xd65f0bffu || word == 0xd65f0fffu) return WL_CODE_RETURNS; /* ret, retaa, retab */
  if (wl_code_is_call(word)) {
    run->called = 1;
    run->lr_known = 0;
    return WL_CODE_ON;
  }
  if (word == WL_A64_SVC) run->called = 1; /* exit */
  if ((word & 0xfe000000u) == 0xd6000000u || (word & 0xffe00000u) == 0xd4200000u || word >> 16 == 0)
    return WL_CODE_GIVE_UP;                              /* another br, brk, udf */
  if ((word & 0x3a000000u) == 0x28000000u && rn == 31) { /* pairs of 64-bit registers, or of vector registers */
    __u32 vector = word >> 26 & 1, opc = word >> 30, mode = word >> 23 & 3; /* mode 1 post-, 3 pre-indexed */
    __s64 scale = vector ? 4ll << opc : 8;
    __s64 offset = wl_code_signed(word, 15, 7) * scale;
    if (!vector && opc != 2) return mode & 1 ? WL_CODE_GIVE_UP : WL_CODE_ON;
    return wl_code_access(env, run, word, 1, word >> 22 & 1, !vector, mode == 1 ? run->sp : run->sp + offset,
                          mode & 1 ? run->sp + offset : run->sp);
  }
  if ((word & 0x3b200000u) == 0x38000000u && rn == 31) { /* one register, signed offset of 9 bits */
    __u32 mode = word >> 10 & 3;                         /* 1 post-, 3 pre-indexed; opc 0 stores */
    __s64 offset = wl_code_signed(word, 12, 9);
    int general = (word >> 26 & 1) == 0 && word >> 30 == 3;
    return wl_code_access(env, run, word, 0, (word >> 22 & 3) != 0, general, mode == 1 ? run->sp : run->sp + offset,
                          mode & 1 ? run->sp + offset : run->sp);
  }
  if ((word & 0xff800000u) == 0xf9000000u && rn == 31) { /* ldr, str of 64 bits with an unsigned offset */
    __u64 address = run->sp + (word >> 10 & 0xfff) * 8;
    return wl_code_access(env, run, word, 0, word >> 22 & 1, 1, address, run->sp);
  }
  if ((word & 0xbf800000u) == 0x91000000u) return wl_code_add(run, word);
  /* sp by a register, or aligned. */
  if ((word & 0xbfe0001fu) == 0x8b20001fu || (word & 0xff80001fu) == 0x9200001fu) return WL_CODE_GIVE_UP;
  int memory = (word & 0x0a000000u) == 0x08000000u; /* through another register */
  if (memory && (word >> 26 & 1)) return WL_CODE_ON;
  if (memory || (word & 0x1c000000u) == 0x10000000u || (word & 0x0e000000u) == 0x0a000000u) { /* data processing */
    int pair = memory && (word & 0x38000000u) == 0x28000000u;
    if (rd == WL_A64_X29 || (pair && (word >> 10 & 31) == WL_A64_X29)) run->fp_known = 0;
    if (rd == WL_A64_X30 || (pair && (word >> 10 & 31) == WL_A64_X30)) run->lr_known = 0;
  }
  return WL_CODE_ON;
}

/* Could `value` be a return address? It must be in executable memory and stand behind a call. */
WL_GLOBAL int wl_is_return_address(struct wl_unwind* u, __u64 value) {
  if (!u || (value & 3)) return 0;
  const struct wl_mapping* mapping = wl_find_mapping(&u->env, u->maps, u->map_count, value - 4);
  if (!mapping) return 0;
  if (mapping->kind != WL_MAPPING_FILE) return 1;             /* interpreters push addresses to go on at */
  if (wl_read(&u->env, u->room.call, 4, value - 4)) return 1; /* execute-only, or not present: not known */
  return wl_code_is_call(*(const __u32*)u->room.call);
}

#define WL_NEAR (1u << 20)

/* The certainty of a caller at `value` that code behind calls, or the frame pointer, led to. The call before `value`
 * must lead to the function at the cursor. A direct call must lead to a place not far before the pc; user space checks
 * guesses again. An indirect call may lead anywhere. */
WL_GLOBAL int wl_call_certainty(struct wl_unwind* u, __u64 value) {
  if (!u || wl_read(&u->env, u->room.call, 4, value - 4)) return WL_GUESSED;
  __u32 word = *(const __u32*)u->room.call;
  if (!wl_code_is_call(word)) return WL_GUESSED;
  if (word >> 26 != 0x25) return WL_CHECKED; /* not bl */
  __u64 target = value - 4 + (__u64)(wl_code_signed(word, 0, 26) * 4);
  return u->cursor.regs[WL_PC] - target < WL_NEAR ? WL_CHECKED : WL_GUESSED;
}

WL_INLINE int wl_commit_frame(struct wl_unwind* u, __u32 valid, __u32 certainty) {
  struct wl_cursor* cursor = &u->cursor;
  if (u->certainty < certainty) u->certainty = certainty;
  const struct wl_code_run* run = &u->room.run;
  cursor->regs[WL_PC] = WL_STRIP(&u->env, run->lr);
  cursor->regs[WL_SP] = run->sp;
  cursor->regs[WL_FP] = run->fp;
  cursor->valid = valid | (run->fp_known ? 1u << WL_FP : 0);
  cursor->exact = 0;
  return WL_CONTINUE;
}

/* How far x29 lies below the caller's sp in the function that makes the call before `pc`. The nearest prologue before
 * the call must be `stp x29, x30, [sp, #-n]!; mov x29, sp`, with no return between. Returns 0 if this is not known. A
 * function that calls has saved x30, and a function that saves it otherwise is recognised. */
WL_GLOBAL int wl_code_frame_size(struct wl_unwind* u, __u64 pc) {
  if (!u) return 0;
  __u32 next = 0, behind = 0;
  pc -= 4; /* the call */
  for (int i = 0; i < WL_CODE_BACK; i++) {
    pc -= 4;
    if (wl_read(&u->env, u->room.call, 4, pc)) return 0;
    __u32 word = *(const __u32*)u->room.call;
    if ((word & 0xffc07fffu) == 0xa9807bfdu) { /* with mov x29, sp within the next two */
      if (next != 0x910003fdu && behind != 0x910003fdu) return 0;
      return (int)((__u32)(-wl_code_signed(word, 15, 7) * 8) & 1023);
    }
    if (word == 0xd65f03c0u || word == 0xd65f0bffu || word == 0xd65f0fffu || word >> 16 == 0) return 0;
    int store_pair = (word & 0xfe4003e0u) == 0xa80003e0u; /* stp ..., [sp]; str ..., [sp] */
    int store = (word & 0xffc003e0u) == 0xf90003e0u || (word & 0xffe003e0u) == 0xf80003e0u;
    if (((store || store_pair) && (word & 31) == WL_A64_X30) || (store_pair && (word >> 10 & 31) == WL_A64_X30))
      return 0; /* x30 saved in another way */
    behind = next;
    next = word;
  }
  return 0;
}

/* Steps by the chain of frame records alone (AAPCS64 6.4.6). A record does not say where the caller's sp is. Without
 * `size`, the distance between x29 and that place, sp is lost, and only its least value is kept. */
WL_INLINE int wl_step_record(struct wl_unwind* u, __u32 size) {
  struct wl_code_run* run = &u->room.run;
  __u64 fp = u->cursor.regs[WL_FP], sp = u->cursor.regs[WL_SP];
  const __u64* pair = u->room.pair;
  if ((fp & 15) || fp < sp || fp - sp > WL_MAX_FRAME_SIZE || wl_read(&u->env, u->room.pair, sizeof u->room.pair, fp))
    return WL_END_BAD_FRAME_POINTER;
  if (pair[1] == 0) return WL_END_GUESSED;
  run->fp = pair[0];
  run->fp_known = 1;
  run->lr = pair[1];
  run->sp = fp + (size ? size : 16);
  if (!wl_is_return_address(u, WL_STRIP(&u->env, run->lr))) return WL_END_BAD_FRAME_POINTER;
  __u32 certainty = size ? (__u32)wl_call_certainty(u, WL_STRIP(&u->env, run->lr)) : (__u32)WL_GUESSED;
  return wl_commit_frame(u, size ? WL_VALID_BASE : 0, certainty);
}

/* Runs one instruction of u->room.run. wl_code_status. */
WL_GLOBAL int wl_run_instruction(struct wl_unwind* u) {
  if (!u) return WL_CODE_GIVE_UP;
  struct wl_code_run* run = &u->room.run;
  if (wl_read(&u->env, &run->word, 4, run->pc)) return WL_CODE_GIVE_UP;
  if (run->word == 0xd61f0220u) { /* br x17: a linkage stub, on its way to what was called */
    if (wl_read(&u->env, &run->word, 4, run->pc - 16)) return WL_CODE_GIVE_UP;
    if (run->word == WL_A64_PUSH_X16_X30) run->sp += 16;
    return WL_CODE_RETURNS;
  }
  if (run->word >> 26 == 5) { /* b */
    run->pc += (__u64)(wl_code_signed(run->word, 0, 26) * 4);
    return WL_CODE_ON;
  }
  int status = wl_code_execute(&u->env, run);
  run->pc += 4;
  return status;
}

/* Runs the code at the cursor's pc. Does it return? The caller's registers are in u->room.run then. */
WL_GLOBAL int wl_code_returns(struct wl_unwind* u) {
  if (!u) return 0;
  for (int i = 0; i < WL_CODE_INSTRUCTIONS; i++) {
    int status = wl_run_instruction(u);
    if (status != WL_CODE_ON) return status == WL_CODE_RETURNS;
  }
  return 0;
}

/* A step from code without a rule; u->generated says of which kind it is. */
WL_GLOBAL int wl_step_code(struct wl_unwind* u) {
  if (!u) return WL_END_INTERNAL;
  struct wl_cursor* cursor = &u->cursor;
  struct wl_code_run* run = &u->room.run;
  __u64 sp = cursor->regs[WL_SP];
  if (!WL_VALID(cursor, WL_SP)) return WL_END_REGISTER_LOST;
  if (wl_code_is_restorer(u, cursor->regs[WL_PC])) return wl_step_signal(u, sp);
  __builtin_memset(run, 0, sizeof *run);
  run->pc = cursor->regs[WL_PC];
  run->sp = sp;
  run->fp = cursor->regs[WL_FP];
  run->lr = cursor->regs[WL_A64_X30];
  run->fp_known = WL_VALID(cursor, WL_FP);
  run->lr_known = cursor->exact && WL_VALID(cursor, WL_A64_X30);
  if (wl_code_returns(u) && run->lr_known && run->sp >= sp && (run->sp & 15) == 0 &&
      run->sp - sp <= WL_MAX_FRAME_SIZE) {
    int certain = !run->called || run->lr_framed;
    if (certain && run->lr == 0) return run->called ? WL_END_GUESSED : WL_END_COMPLETE;
    if (certain && wl_is_return_address(u, WL_STRIP(&u->env, run->lr))) {
      __u32 certainty = run->called ? (__u32)wl_call_certainty(u, WL_STRIP(&u->env, run->lr)) : (__u32)WL_PROVED;
      return wl_commit_frame(u, WL_VALID_BASE, certainty);
    }
  }
  if (cursor->exact || !WL_VALID(cursor, WL_FP)) return WL_END_BAD_FRAME_POINTER;
  if (cursor->regs[WL_FP] == 0) return WL_END_GUESSED; /* the outermost frame is marked so; it may be data */
  __u32 size = (__u32)wl_code_frame_size(u, cursor->regs[WL_PC]);
  return size || u->generated ? wl_step_record(u, size) : WL_END_BAD_FRAME_POINTER;
}

#endif
