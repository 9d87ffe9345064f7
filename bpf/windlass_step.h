/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Applies a rule to a cursor. Plain C, the same in BPF and in user space; windlass_lookup.h describes the environment.
 * Values are computed first and committed last, so a failure leaves the cursor unchanged.
 */
#ifndef WINDLASS_STEP_H
#define WINDLASS_STEP_H

#include "windlass_cursor.h"
#include "windlass_unwind.h"

/* The address by which to look up a frame's rule. A return address may be the first byte after its function, or belong
 * to the next row. So the call before it counts. */
WL_INLINE __u64 wl_lookup_pc(const struct wl_cursor* cursor) { return cursor->regs[WL_PC] - (cursor->exact ? 0 : 1); }

/* Notes that the walk came from one stack to another, or over a frame as large: a raw sample needs both places. Signal
 * handlers have stacks of their own, and so have runtimes: for example SBCL calls Lisp on a stack of its own, with a
 * row that leads back. */
WL_INLINE void wl_note_stack(struct wl_unwind* u, __u64 sp, __u64 next_sp) {
  if (u->next_stack == 0 && next_sp - sp >= WL_MAX_RAW_PIECE) u->next_stack = next_sp;
}

#ifdef WL_TARGET_A64

/* Removes the authentication code of a return address. The kernel's own unwinder clears the same bits of every return
 * address (ptrauth_strip_user_insn_pac). The bits depend on the kernel's address size, so the processor is asked
 * (src/base/pointer_authentication.h). */
#define WL_STRIP(env, address) ((address)&wl_address_mask_of(env))

#define WL_A64_MOV_RT_SIGRETURN 0xd2801168u /* mov x8, #139 */
#define WL_A64_SVC 0xd4000001u

/* True if the way back from a signal handler is at `pc`, or begins one instruction before it. */
WL_GLOBAL int wl_code_is_restorer(struct wl_unwind* u, __u64 pc) {
  if (!u) return 0;
  const __u32* words = (const __u32*)u->room.call;
  if (wl_read(&u->env, u->room.call, 4, pc)) return 0;
  if (words[0] == WL_A64_SVC) pc -= 4;
  if (wl_read(&u->env, u->room.call, 8, pc)) return 0;
  return words[0] == WL_A64_MOV_RT_SIGRETURN && words[1] == WL_A64_SVC;
}

/* Linux's rt_sigframe of AArch64 at sp while the trampoline runs (asm/sigcontext.h, asm/ucontext.h). It is siginfo,
 * then ucontext, with the sigcontext at 176: fault address, x0-x30, sp, pc. Every register is known again. */
#define WL_SIGFRAME_REGISTERS (128u + 176u + 8u)

WL_GLOBAL int wl_step_signal(struct wl_unwind* u, __u64 frame) {
  if (!u) return WL_END_INTERNAL;
  struct wl_cursor* cursor = &u->cursor;
  const __u64* saved = u->room.saved;
  if (wl_read(&u->env, u->room.saved, sizeof u->room.saved, frame + WL_SIGFRAME_REGISTERS))
    return WL_END_UNREADABLE_STACK;
  wl_note_stack(u, cursor->regs[WL_SP], saved[WL_SP]);
  if (saved[WL_SP] <= cursor->regs[WL_SP]) {
    if (++cursor->backward > WL_MAX_BACKWARD_STEPS) return WL_END_NO_PROGRESS;
  }
  for (int i = 0; i <= WL_A64_PC; i++) cursor->regs[i] = saved[i];
  cursor->valid = WL_VALID_ALL;
  cursor->exact = 1;
  return WL_CONTINUE;
}

#define WL_A64_RT_SIGRETURN 139

/* Corrects the registers while the kernel delivers a signal, or restores the interrupted state: they are partly the
 * handler's. By then the signal frame is complete, and sp points at it. x19 to x28 and x30 have the frame's values.
 * These are the same on both sides, except x30, which changes last on delivery (setup_return in
 * arch/arm64/kernel/signal.c). The thread then counts as being at the interrupted place. */
WL_GLOBAL int wl_undo_delivery(struct wl_unwind* u) {
  if (!u) return 0;
  __u64* now = u->cursor.regs;
  const __u64* saved = u->room.saved;
  if (wl_read(&u->env, u->room.saved, sizeof u->room.saved, now[WL_SP] + WL_SIGFRAME_REGISTERS)) return 0;
  __u64 different = saved[WL_A64_X30] ^ now[WL_A64_X30];
  for (int i = 19; i <= 28; i++) different |= saved[i] ^ now[i];
  if (different || saved[WL_SP] <= 4096 || saved[WL_PC] <= 4096) return 0;
  __builtin_memcpy(now, saved, sizeof u->room.saved);
  return 1;
}

/* The pc of a system call is the instruction behind it. But behind the instruction of rt_sigreturn comes other code. */
WL_INLINE void wl_settle(struct wl_unwind* u) {
  if (wl_undo_delivery(u)) return;
  if (u->cursor.regs[8] == WL_A64_RT_SIGRETURN && wl_code_is_restorer(u, u->cursor.regs[WL_PC] - 4))
    u->cursor.regs[WL_PC] -= 4;
}

#else

#define WL_STRIP(env, address) (address)

/* mov $SYS_rt_sigreturn, %rax; syscall: the restorer of a C library without CFI for it (musl, Go) */
WL_INLINE int wl_code_is_restorer(const __u8* c) {
  return c[0] == 0x48 && c[1] == 0xc7 && c[2] == 0xc0 && c[3] == 0x0f && c[4] == 0 && c[5] == 0 && c[6] == 0 &&
         c[7] == 0x0f && c[8] == 0x05;
}

/* Is `c`, with 7 bytes before it, the system call at that code's end? Or that of mov $SYS_rt_sigreturn, %eax; syscall
 */
WL_INLINE int wl_code_ends_restorer(const __u8* c) {
  if (c[0] != 0x0f || c[1] != 0x05 || c[-4] != 15 || c[-3] || c[-2] || c[-1]) return 0;
  return c[-5] == 0xb8 || (c[-7] == 0x48 && c[-6] == 0xc7 && c[-5] == 0xc0);
}

/* The pc of a system call is the instruction behind it. But behind the instruction of rt_sigreturn comes other code.
 * The result of a call that is under way is -ENOSYS (arch/x86/entry). */
#define WL_CALL_UNDER_WAY (~0ull - 37)

WL_INLINE void wl_settle(struct wl_unwind* u) {
  __u64* regs = u->cursor.regs;
  if (regs[0] != WL_CALL_UNDER_WAY || wl_read(&u->env, u->room.code, 9, regs[WL_PC] - 9)) return;
  if (wl_code_ends_restorer(u->room.code + 7)) regs[WL_PC] -= 2;
}

/* Linux's rt_sigframe of x86-64 as the restorer sees it: the ucontext at `context`, its sigcontext 40 bytes in
 * (asm/sigcontext.h). The order is r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip. Every register is known
 * again. */
#define WL_SIGCONTEXT_OFFSET 40u
#define WL_SIGCONTEXT_RSP 160 /* of the ucontext */

WL_GLOBAL int wl_step_signal(struct wl_unwind* u, __u64 context) {
  if (!u) return WL_END_INTERNAL;
  struct wl_cursor* cursor = &u->cursor;
  const __u64* saved = u->room.saved;
  if (wl_read(&u->env, u->room.saved, sizeof u->room.saved, context + WL_SIGCONTEXT_OFFSET))
    return WL_END_UNREADABLE_STACK;
  for (int i = 0; i < 8; i++) cursor->regs[8 + i] = saved[i];
  cursor->regs[5] = saved[8];
  cursor->regs[4] = saved[9];
  cursor->regs[6] = saved[10];
  cursor->regs[3] = saved[11];
  cursor->regs[1] = saved[12];
  cursor->regs[0] = saved[13];
  cursor->regs[2] = saved[14];
  wl_note_stack(u, cursor->regs[7], saved[15]);
  if (saved[15] <= cursor->regs[7]) {
    if (++cursor->backward > WL_MAX_BACKWARD_STEPS) return WL_END_NO_PROGRESS;
  }
  cursor->regs[7] = saved[15];
  cursor->regs[16] = saved[16];
  cursor->valid = WL_VALID_ALL;
  cursor->exact = 1;
  return WL_CONTINUE;
}

#endif

/* Puts the caller's value of a register into u->room.value. Returns 0; 1 if the value is unknown in the caller; 2 if it
 * cannot be read. */
WL_GLOBAL int wl_register_value(struct wl_unwind* u, __u32 reg, __u32 kind, __s32 offset, __u32 arg) {
  if (!u) return 1;
  const struct wl_cursor* cursor = &u->cursor;
  __u64 from;
  switch (kind) {
    case WL_REG_SAME: /* value = register */
      u->room.value = cursor->regs[reg & WL_REGISTER_MASK];
      return WL_VALID(cursor, reg & 31) ? 0 : 1;
    case WL_REG_IN_REG: /* value = register number `offset` */
      u->room.value = cursor->regs[offset & WL_REGISTER_MASK];
      return (__u32)offset < WL_RULE_REGISTERS && WL_VALID(cursor, (__u32)offset & WL_REGISTER_MASK) ? 0 : 1;
    case WL_REG_CFA_VALUE: /* value = CFA + offset */ u->room.value = u->room.cfa + offset; return 0;
    case WL_REG_CFA: /* value = [CFA + offset] */ from = u->room.cfa; break;
    case WL_REG_BASE: /* value = [cfa_reg + offset] */ from = u->room.base; break;
    case WL_REG_FP: /* value = [frame pointer + offset] */
      if (!WL_VALID(cursor, WL_FP)) return 1;
      from = cursor->regs[WL_FP];
      break;
    case WL_REG_ARG: /* value = [register number arg_reg + offset] */
      if (!WL_VALID(cursor, arg & WL_REGISTER_MASK)) return 1;
      from = cursor->regs[arg & WL_REGISTER_MASK];
      break;
    default: return 1;
  }
  return wl_read(&u->env, &u->room.value, 8, from + offset) ? 2 : 0;
}

WL_INLINE int wl_load_word(struct wl_unwind* u, enum wl_sampled_word i, __u64 address) {
  struct wl_word* word = &u->words[i];
  int failed = wl_read(&u->env, &word->value, 8, address);
  word->address = failed ? 0 : address;
  return failed;
}

WL_INLINE void wl_forget_words(struct wl_unwind* u, __u32 first, __u32 end) {
  for (__u32 i = first; i < end; i++) u->words[i].address = 0;
}

/* The thread's pointer of a program for Windows, where wl_process.thread_slot says. */
WL_GLOBAL int wl_use_thread_slot(struct wl_unwind* u, __u64 slot) {
  if (!u) return 1;
  u->thread_pointer = 0;
  if (slot >= WL_LEAST_VARIABLE) {
    if (wl_load_word(u, WL_THREAD_SLOT, slot)) return 1;
    slot = u->words[WL_THREAD_SLOT].value;
  }
  if (!u->gs_base || slot == 0 || slot >= WL_TEB_BYTES || wl_load_word(u, WL_THREAD_WORD, u->gs_base + slot)) return 1;
  u->thread_pointer = u->words[WL_THREAD_WORD].value;
  return 0;
}

/* Puts the CFA of WL_CFA_THREAD into u->room.cfa, and the place it was loaded from. Returns WL_CONTINUE, or why there
 * is none. */
WL_GLOBAL int wl_thread_cfa(struct wl_unwind* u, const struct wl_rule* rule) {
  if (!u || !rule) return WL_END_INTERNAL;
  if (u->cursor.left) return WL_END_COMPLETE;
  if (u->thread_pointer == 0) return WL_END_REGISTER_LOST;
  struct wl_word* way = u->words;
  struct wl_last_load last = rule->last;
  if (wl_load_word(u, WL_WAY_FIRST, u->thread_pointer + rule->way_first)) return WL_END_UNREADABLE_STACK;
  if (wl_load_word(u, WL_WAY_SECOND, way[WL_WAY_FIRST].value + 8ull * rule->way_second)) return WL_END_UNREADABLE_STACK;
  if (wl_load_word(u, WL_WAY_KEEPER, way[WL_WAY_SECOND].value + 8ull * last.words)) return WL_END_UNREADABLE_STACK;
  if (way[WL_WAY_KEEPER].value == 0) return WL_END_COMPLETE;
  u->room.base = way[WL_WAY_KEEPER].value + 8ull * rule->way_sp;
  if (wl_load_word(u, WL_WAY_SP, u->room.base)) return WL_END_UNREADABLE_STACK;
  u->room.cfa = way[WL_WAY_SP].value + 8ull * last.addend;
  return WL_CONTINUE;
}

/* Puts the CFA of WL_CFA_MOVABLE into u->room.cfa. `base` is the value of its register. Returns 0 if there is no
 * readable stack. */
WL_GLOBAL int wl_movable_cfa(struct wl_unwind* u, const struct wl_rule* rule, __u64 base) {
  if (!u || !rule) return 0;
  __u64* word = &u->room.value;
  struct wl_last_load last = rule->last;
  if (wl_read(&u->env, word, 8, base + rule->owner)) return 0;
  if (wl_read(&u->env, word, 8, *word + 8ull * rule->top)) return 0;
  u->room.cfa = *word + 8ull * last.addend;
  if (wl_read(&u->env, word, 8, base + 8ull * last.words)) return 0;
  u->room.cfa -= *word;
  return 1;
}

/* Follows u->way. */
WL_INLINE int wl_follow_way(struct wl_unwind* u) {
  wl_forget_words(u, 0, WL_WAY_WORDS);
  u->kept_sp = 0;
  u->kept_end = u->left_at = ~0ull;
  u->rule.way_first = u->way.first;
  u->rule.way_second = u->way.second;
  u->rule.way_sp = u->way.sp;
  u->rule.last.addend = 0;
  u->rule.last.words = u->way.keeper;
  return wl_thread_cfa(u, &u->rule);
}

/* The lowest byte in use of the stack that the code at the cursor runs on: the thread's own record of sp, or rbp, if
 * rbp is near that. Code keeps sp in rbp for calls that need not know of it, and the thread's record is then older.
 * Returns `otherwise` if this is not known, or no such code runs. */
WL_GLOBAL __u64 wl_other_sp(struct wl_unwind* u, __u64 otherwise) {
  if (!u) return otherwise;
  u->way = u->other_stack;
  if (wl_follow_way(u) != WL_CONTINUE) return otherwise;
  __u64 kept = u->room.cfa;
  u->kept_sp = kept;
  u->left_at = u->cursor.regs[WL_SP] + WL_SWITCH_ROOM;
  __u64 end = u->way.end;
  if (end && !wl_read(&u->env, &u->room.value, 8, u->room.base + 8 * end) && u->room.value > kept)
    u->kept_end = u->room.value;
  __u64 fp = u->cursor.regs[WL_FP];
  if (WL_VALID(&u->cursor, WL_FP) && fp < kept && kept - fp < WL_MAX_RAW_PIECE / 2) return fp;
  return kept;
}

/* The same for a thread at its first frame, whose program's table may not be known yet. u->way is that of other
 * programs of Go. In every release it leads from the g whose stack the thread is on to the g that the thread runs, and
 * a g begins with its stack's bounds. So the words show whether this is a thread of Go; 0: it is not, or runs on the
 * goroutine's stack. The loaded words stay, for rules that the agent applies. */
WL_GLOBAL __u64 wl_other_go_sp(struct wl_unwind* u) {
  if (!u) return 0;
  int found = wl_follow_way(u);
  __u64 sp = u->cursor.regs[WL_SP];
  __u64* bounds = u->room.pair;
  if (!u->words[WL_WAY_KEEPER].address || wl_read(&u->env, bounds, 16, u->words[WL_WAY_FIRST].value) ||
      sp < bounds[0] || sp > bounds[1]) {
    wl_forget_words(u, 0, WL_WAY_WORDS);
    return 0;
  }
  __u64 high = bounds[1] + WL_ARGUMENTS; /* of another program's data, perhaps, until the words lead back or on */
  __u64 keeper = u->words[WL_WAY_KEEPER].value, kept = u->room.cfa;
  if (found != WL_CONTINUE) return 0;
  if (keeper == u->words[WL_WAY_FIRST].value) {
    u->left_at = high;
    return 0;
  }
  wl_load_word(u, WL_WAY_PC, u->room.base + 8);
  if (wl_load_word(u, WL_WAY_LOW, keeper) || wl_load_word(u, WL_WAY_HIGH, keeper + 8) ||
      kept < u->words[WL_WAY_LOW].value || kept > u->words[WL_WAY_HIGH].value)
    return 0;
  u->left_at = high;
  u->kept_sp = kept;
  u->kept_end = u->words[WL_WAY_HIGH].value;
  return kept;
}

/* The same by the ways that are known beforehand, for a recording's first program of Go. Also by `last`, the way of the
 * last table that had one: C code in the program moves the first offset. */
static const struct wl_way wl_go_of_1_14 = WL_GO_WAY_OF_1_14, wl_go_of_1_25 = WL_GO_WAY_OF_1_25;
WL_INLINE __u64 wl_any_go_sp(struct wl_unwind* u, const struct wl_way* last, __u64 otherwise) {
  u->way = wl_go_of_1_14;
  __u64 sp = wl_other_go_sp(u);
  if (!sp) {
    u->way = wl_go_of_1_25;
    sp = wl_other_go_sp(u);
  }
  if (!sp && last->there) {
    u->way = *last;
    sp = wl_other_go_sp(u);
  }
  return sp ? sp : otherwise;
}

/* Reads the caller's frame that the frame at hand holds, for code that is WL_MAPPING_HELD. */
WL_GLOBAL int wl_read_held(struct wl_unwind* u) {
  if (!u || !WL_VALID(&u->cursor, WL_FP)) return 1;
  __u64* word = &u->room.value;
  if (wl_read(&u->env, word, 8, u->cursor.regs[WL_SP])) return 1;
  __u64 end = *word + 8;
  if (wl_read(&u->env, word, 8, *word)) return 1;
  if (wl_load_word(u, WL_HELD_FRAME, *word + u->held.input)) return 1;
  __u64 fp = u->words[WL_HELD_FRAME].value;
  if (wl_load_word(u, WL_HELD_SIZE, fp)) return 1;
  fp += u->held.content + u->words[WL_HELD_SIZE].value - (end - u->cursor.regs[WL_FP]);
  return wl_load_word(u, WL_HELD_FP, fp) || wl_load_word(u, WL_HELD_RETURN, fp + 8);
}

/* Checks sp after the step, which is `cfa`. Plain frames move sp only up. Code that switches stacks may move it down, a
 * few times. Returns 0 if the step is acceptable. */
WL_INLINE int wl_check_progress(struct wl_cursor* cursor, const struct wl_rule* rule, __u64 cfa, __u8* backward) {
  __u64 sp = cursor->regs[WL_SP];
  *backward = cursor->backward;
  if (cfa > sp) return 0;
  /* AArch64's leaves; x86-64's vfork, whose return address is popped into a register. */
  if (cfa == sp && rule->ra_kind == WL_REG_IN_REG) return 0;
#ifdef WL_TARGET_A64
  if (cfa == sp && cursor->exact) return 0; /* behind the last load of an epilogue */
#endif
  int popped = cfa == sp && rule->ra_kind == WL_REG_ARG; /* as vfork's, to memory */
  int from_sp = rule->cfa_reg == WL_SP && rule->cfa_kind != WL_CFA_MEM && rule->cfa_kind != WL_CFA_THREAD &&
                rule->cfa_kind != WL_CFA_MOVABLE;
  if (from_sp && !popped) return 1;
  *backward = cursor->backward + 1;
  return *backward > WL_MAX_BACKWARD_STEPS;
}

/* Applies `rule` at a frame whose lookup address is `address`, in any numbering that keeps the low 4 bits; only
 * WL_CFA_PLT uses them. x_reg is the extra register that the rule's module tracks, or WL_NO_XREG. Returns WL_CONTINUE
 * with the caller in the cursor, or why there is none. Address 0 is an end only at a call. Between two instructions the
 * row may be wrong, which the agent sees by the code. */
WL_GLOBAL int wl_apply(struct wl_unwind* u, const struct wl_rule* rule, __u32 x_reg, __u64 address) {
  if (!u || !rule) return WL_END_INTERNAL;
  const struct wl_env* env = &u->env;
  struct wl_cursor* cursor = &u->cursor;
  if (rule->cfa_kind == WL_CFA_NONE) return WL_END_NO_ROW;
  if (rule->cfa_kind == WL_CFA_UNSUPPORTED) return WL_END_UNSUPPORTED_EXPRESSION;
  if (rule->ra_kind == WL_REG_UNDEFINED) return WL_END_COMPLETE;
  /* WL_CFA_THREAD counts from no register of the frame. */
  __u32 cfa_reg = rule->cfa_kind == WL_CFA_THREAD ? WL_SP : rule->cfa_reg;
#ifdef WL_TARGET_A64
  /* Whatever the row says: the kernel's vdso describes the way to the interrupted code's frame record, not to its pc.
   */
  if ((rule->flags & WL_RULE_SIGNAL) && WL_VALID(cursor, WL_SP) && wl_code_is_restorer(u, cursor->regs[WL_PC]))
    return wl_step_signal(u, cursor->regs[WL_SP]);
#endif
  if (cfa_reg >= WL_RULE_REGISTERS || !WL_VALID(cursor, cfa_reg)) return WL_END_REGISTER_LOST;
  __u64 base = cursor->regs[cfa_reg & WL_REGISTER_MASK];
#ifndef WL_TARGET_A64
  /* In the kernel's context of a signal rip stands above rsp. In Windows' machine frame it stands below, and OCaml's
   * frames of a garbage collection are marked as signal frames, whose return address is on the stack that they lead to.
   */
  if ((rule->flags & WL_RULE_SIGNAL) && cfa_reg == WL_SP && rule->cfa_kind == WL_CFA_MEM &&
      rule->ra_kind == WL_REG_BASE && rule->ra_offset > rule->cfa_offset) {
    return wl_step_signal(u, base + rule->cfa_offset - WL_SIGCONTEXT_RSP);
  }
#endif

  __u64 cfa = base + rule->cfa_offset;
  u->room.base = base;
  if (rule->cfa_kind == WL_CFA_MEM) {
    if (wl_read(env, &u->room.value, 8, cfa)) return WL_END_UNREADABLE_STACK;
    cfa = u->room.value + ((__u32)rule->cfa_arg << (rule->flags & WL_RULE_WORDS ? 3 : 0));
  } else if (rule->cfa_kind == WL_CFA_PLT) {
    cfa += (address & 15) >= rule->cfa_arg ? 8 : 0;
  } else if (rule->cfa_kind == WL_CFA_THREAD) {
    int found = wl_thread_cfa(u, rule);
    if (found != WL_CONTINUE) return found;
    cfa = u->room.cfa;
  } else if (rule->cfa_kind == WL_CFA_MOVABLE) {
    if (!wl_movable_cfa(u, rule, base)) return WL_END_UNREADABLE_STACK;
    cfa = u->room.cfa;
  }
  __u8 backward;
  if (wl_check_progress(cursor, rule, cfa, &backward)) return WL_END_NO_PROGRESS;
  u->room.cfa = cfa;

  if (rule->ra_kind == WL_REG_SAME) return WL_END_UNSUPPORTED_EXPRESSION; /* nothing means this */
  int status = wl_register_value(u, WL_PC, rule->ra_kind, rule->ra_offset, rule->arg_reg);
  if (status) return status == 2 ? WL_END_UNREADABLE_STACK : WL_END_REGISTER_LOST;
  __u64 pc = WL_STRIP(env, u->room.value);
  if (pc == 0 && !(rule->flags & WL_RULE_SIGNAL)) /* else a call of a null pointer */
    return cursor->exact || rule->proof == WL_PROOF_NO_END ? WL_END_GUESSED : WL_END_COMPLETE;
  __u32 valid = WL_VALID_BASE;
  status = wl_register_value(u, WL_FP, rule->fp_kind, rule->fp_offset, rule->arg_reg);
  if (status == 2) return WL_END_UNREADABLE_STACK;
  if (status == 0) valid |= 1u << WL_FP;
  __u64 fp = u->room.value;
  if (x_reg < WL_EXTRA_REGISTERS) {
    status = wl_register_value(u, x_reg, rule->x_kind, rule->x_offset, rule->arg_reg);
    if (status == 2) return WL_END_UNREADABLE_STACK;
    if (status == 0) valid |= 1u << x_reg;
    WL_OPAQUE(x_reg);
    cursor->regs[x_reg & WL_REGISTER_MASK] = u->room.value;
  }

  wl_note_stack(u, cursor->regs[WL_SP], cfa);
  cursor->regs[WL_PC] = pc;
  cursor->regs[WL_SP] = cfa;
  cursor->regs[WL_FP] = fp;
  cursor->valid = valid;
  cursor->backward = backward;
  if (rule->flags & WL_RULE_LEFT) cursor->left = 1;
  if (rule->proof == WL_PROOF_CODE && u->certainty == WL_DESCRIBED) u->certainty = WL_PROVED;
#ifdef WL_TARGET_A64
  cursor->exact = (rule->flags & WL_RULE_SIGNAL) != 0;
#else
  /* A return address in a register is jumped to: a landing pad (libgcc's _Unwind_RaiseException), or vfork's caller. So
   * its row is the row at the address, not the row before. */
  cursor->exact = (rule->flags & WL_RULE_SIGNAL) != 0 || rule->ra_kind == WL_REG_IN_REG;
#endif
  return WL_CONTINUE;
}

#endif
