/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Code without a row (generated code, assembly without CFI): a guarded step by the frame pointer.
 *
 * A blind step by rbp from a prologue, an epilogue or a function without a frame skips a caller, and still looks
 * complete. So the code at the pc is read. It says "before push rbp", "after it", "about to return", or nothing. If it
 * says nothing, the step is taken only if the word on top of the stack cannot be a return address. In a function
 * without a frame that word is a return address. Else the walk ends as WL_END_BAD_FRAME_POINTER, and the sample goes to
 * user space.
 */
#ifndef WINDLASS_CODE_H
#define WINDLASS_CODE_H

#include "windlass_lookup.h"
#include "windlass_step.h"

/* How many words on top of the stack must not look like return addresses for a frame pointer to be trusted. */
#define WL_SLOTS_GENERATED 1 /* JIT compilers that use rbp frames push nothing in code they elide the frame from */
#define WL_SLOTS_FILE 8      /* assembly without CFI may save registers first */
#define WL_SLOTS_END 16      /* a frame pointer of 0 that claims to be the last frame */

/* Where the frame is, by the code at an exact pc. */
enum wl_code_frame {
  WL_FRAME_UNKNOWN = 0,
  WL_FRAME_AT_SP = 1,  /* CFA = rsp + 8, rbp the caller's: before push rbp, at ret */
  WL_FRAME_PUSHED = 2, /* CFA = rsp + 16, [rsp] = the caller's rbp: after push rbp, at pop rbp; ret */
  WL_FRAME_BODY = 3,   /* CFA = rbp + 16 for certain: at leave; mov rsp, rbp */
  WL_FRAME_LOST = 4,   /* no frame, and the return address is in a register */
};

/* True for the way out of a function with the return address on top: a ret, or a safepoint poll that HotSpot puts
 * before ret (macroAssembler_x86.cpp: cmp rsp, [r15 + disp32]; ja stub; ret, since JDK 16). */
WL_INLINE int wl_code_returns(const __u8* c) {
  if (c[0] == 0xc3 || c[0] == 0xc2) return 1;                            /* ret; ret imm16 */
  if (c[0] == 0xf3 && c[1] == 0xc3) return 1;                            /* rep ret */
  if (c[0] == 0x0f && c[1] == 0x87 && c[6] == 0xc3) return 1;            /* ja stub; ret */
  if (c[0] == 0x49 && c[1] == 0x3b && c[2] == 0xa7)                      /* cmp rsp, [r15 + disp32] */
    return c[7] == 0x0f && c[8] == 0x87 && c[13] == 0xc3;                /* ja stub; ret */
  if (c[0] == 0xc5 && c[1] == 0xf8 && c[2] == 0x77) return c[3] == 0xc3; /* vzeroupper; ret */
  return 0;
}

/* The way out of V8's JavaScript functions, behind pop rbp: pop r10; lea rsp, [rsp + r12 * 8]; push r10; ret. It may
 * have rcx for r10. Returns 1 at the pop, where the return address is on top; 2 behind it, where the register has it.
 */
WL_INLINE int wl_code_drops_arguments(const __u8* c) {
  if (c[0] == 0x41 && c[1] == 0x5a && c[3] == 0x8d && c[4] == 0x24) return 1;
  if (c[0] == 0x59 && c[1] == 0x48 && c[2] == 0x8d) return 1;
  if (c[1] == 0x8d && c[2] == 0x24 && c[4] == 0x41 && c[5] == 0x52 && c[6] == 0xc3) return 2;
  if (c[1] == 0x8d && c[2] == 0x24 && c[4] == 0x51 && c[5] == 0xc3) return 2;
  if (c[0] == 0x41 && c[1] == 0x52 && c[2] == 0xc3) return 2;
  if (c[0] == 0x51 && c[1] == 0xc3) return 2;
  return 0;
}

/* mov rbp, rsp in both encodings */
WL_INLINE int wl_code_sets_frame(const __u8* c) {
  return c[0] == 0x48 && ((c[1] == 0x89 && c[2] == 0xe5) || (c[1] == 0x8b && c[2] == 0xec));
}

/* push rbp; mov rbp, rsp, perhaps behind the deoptimisation check of V8: mov rbx, [rcx - 8]; test [rbx + N], 1; jnz */
WL_INLINE int wl_code_enters(const __u8* c) {
  if (c[0] == 0x55) return wl_code_sets_frame(c + 1);
  if (c[0] == 0x0f && c[1] == 0x85) return c[6] == 0x55 && wl_code_sets_frame(c + 7);
  if (c[0] == 0xf6 && c[1] == 0x43 && c[3] == 1) return c[4] == 0x0f && c[5] == 0x85 && c[10] == 0x55;
  if (c[0] == 0x48 && c[1] == 0x8b && c[2] == 0x59 && c[4] == 0xf6)
    return c[8] == 0x0f && c[9] == 0x85 && c[14] == 0x55;
  return 0;
}

/* mov rsp, rbp; pop rbp, or leave; ret, or pop rbp; ret, or an access to [rbp - N]. Without branches, like the searches
 * of windlass_lookup.h, and with a plain loop around it: older verifiers take no other. */
WL_INLINE __u64 wl_code_shows_frame(const __u8* c) {
  __u32 word = (__u32)c[0] | (__u32)c[1] << 8 | (__u32)c[2] << 16 | (__u32)c[3] << 24;
  __u64 leaves = wl_equal(word, 0x5dec8948u) | wl_equal(word, 0x5de58b48u); /* 48 89 ec 5d, 48 8b e5 5d */
  __u64 returns = wl_equal(word & 0xffff, 0xc3c9u) | wl_equal(word & 0xffff, 0xc35du);
  /* REX.W mov, lea, movsxd with mod = 01, rm = rbp, negative displacement */
  __u32 op = word >> 8 & 0xff;
  __u64 accesses = wl_equal(op, 0x8b) | wl_equal(op, 0x89) | wl_equal(op, 0x8d) | wl_equal(op, 0x63);
  return leaves | returns | (accesses & wl_equal(word & 0x80c700f8u, 0x80450048u));
}

/* Does the code in the room from WL_CODE_BEFORE on show that its function has a frame now? What stands behind a return,
 * or behind another mov rbp, rsp, says nothing. */
#define WL_SHOWS_FRAME 1
#define WL_SAYS_NOTHING 2 /* it goes on behind this piece */
#define WL_CODE_PIECE (WL_CODE_BYTES - 3 - WL_CODE_BEFORE)

#define WL_CODE_BYTES_A_CALL 7u /* The verifier goes through every round of a loop. */

/* The same for some bytes of the piece, from the one of that number on. */
WL_GLOBAL int wl_code_scan_some(struct wl_unwind* u, __u32 from) {
  if (!u || from > WL_CODE_BYTES - 3 - WL_CODE_BYTES_A_CALL) return 0;
  __u64 found = 0, live = 1;
  for (__u32 i = 0; i < WL_CODE_BYTES_A_CALL; i++) {
    const __u8* c = u->room.code + from + i;
    __u32 word = (__u32)c[0] | (__u32)c[1] << 8 | (__u32)c[2] << 16;
    live &= 1 ^ (wl_equal(word, 0xe58948u) | wl_equal(word, 0xec8b48u));
    found |= live & wl_code_shows_frame(c);
    live &= 1 ^ wl_equal(c[0], 0xc3);
  }
  return found ? WL_SHOWS_FRAME : live ? WL_SAYS_NOTHING : 0;
}

#if WL_CODE_PIECE % WL_CODE_BYTES_A_CALL != 0
#error A call has all its bytes in the piece.
#endif

WL_GLOBAL int wl_code_scan(struct wl_unwind* u) {
  if (!u) return 0;
  int state = WL_SAYS_NOTHING;
  for (__u32 i = 0; i < WL_CODE_PIECE; i += WL_CODE_BYTES_A_CALL) {
    state = wl_code_scan_some(u, WL_CODE_BEFORE + i);
    if (state != WL_SAYS_NOTHING) break;
  }
  return state;
}

/* V8's way from C++ into JavaScript (JSEntry) restores a good deal before it pops rbp. */
#define WL_CODE_PIECES 5

/* Does the code from the pc on, in the room, show that its function has a frame now? Generated code is searched
 * further, because its compilers use rbp for a frame or for nothing. In other code a pop of rbp may only restore a
 * saved value. */
WL_GLOBAL int wl_code_uses_frame(struct wl_unwind* u) {
  if (!u) return 0;
  int state = wl_code_scan(u);
  if (!u->generated) return state == WL_SHOWS_FRAME;
  __u64 at = u->cursor.regs[WL_X64_RIP] - WL_CODE_BEFORE;
  for (int i = 1; i < WL_CODE_PIECES; i++) {
    if (state != WL_SAYS_NOTHING) break;
    at += WL_CODE_PIECE;
    if (wl_read(&u->env, u->room.code, WL_CODE_BYTES, at)) break;
    state = wl_code_scan(u);
  }
  return state == WL_SHOWS_FRAME;
}

/* `c` is the code at the pc, with WL_CODE_BEFORE readable bytes before it. */
WL_INLINE int wl_code_frame_at(const __u8* c) {
  if (wl_code_enters(c)) return WL_FRAME_AT_SP;
  if (c[0] == 0xf3 && c[1] == 0x0f && c[2] == 0x1e && c[3] == 0xfa && c[4] == 0x55) return WL_FRAME_AT_SP; /* endbr64 */
  if (c[0] == 0x89 && c[1] == 0x84 && c[2] == 0x24 && c[7] == 0x55)
    return WL_FRAME_AT_SP; /* mov [rsp - N], eax; push */
  if (c[-1] == 0x55 && wl_code_sets_frame(c)) return WL_FRAME_PUSHED;
  if (c[0] == 0x5d && (wl_code_returns(c + 1) || wl_code_drops_arguments(c + 1) == 1))
    return WL_FRAME_PUSHED; /* pop rbp; ret */
  int drops = wl_code_drops_arguments(c);
  if (drops) return drops == 1 ? WL_FRAME_AT_SP : WL_FRAME_LOST;
  if (wl_code_returns(c)) return WL_FRAME_AT_SP;
  if (c[0] == 0xc9) return WL_FRAME_BODY; /* leave */
  if (c[0] == 0x48 && ((c[1] == 0x89 && c[2] == 0xec) || (c[1] == 0x8b && c[2] == 0xe5)) && c[3] == 0x5d)
    return WL_FRAME_BODY; /* mov rsp, rbp; pop rbp */
  return WL_FRAME_UNKNOWN;
}

/* Is `modrm` that of a ff /2 (call r/m) of `length` bytes, without a REX prefix? Intel SDM 2A, tables 2-2 and 2-3 */
WL_INLINE int wl_is_call_modrm(__u8 modrm, __u8 sib, int length) {
  __u8 mod = modrm >> 6, rm = modrm & 7;
  if ((modrm & 0x38) != 0x10) return 0;
  int displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
  if (mod == 0 && (rm == 5 || (rm == 4 && (sib & 7) == 5))) displacement = 4;
  return length == 2 + (mod != 3 && rm == 4) + displacement;
}

WL_INLINE int wl_ends_with_indirect_call(const __u8* code) {
#define WL_CALL(at) (code[at] == 0xff && wl_is_call_modrm(code[(at) + 1], code[((at) + 2) & 7], 8 - (at)))
  return WL_CALL(1) || WL_CALL(2) || WL_CALL(4) || WL_CALL(5) || WL_CALL(6);
#undef WL_CALL
}

/* Does a call instruction end at the last of these 8 bytes? */
WL_INLINE int wl_ends_with_call(const __u8* code) {
  return code[3] == 0xe8 /* call rel32 */ || wl_ends_with_indirect_call(code);
}

/* True if `value` may be a return address: it is in executable memory, and stands behind a call. In generated code
 * there need be no call, since interpreters push the address to go on at themselves (HotSpot's return entries). On an
 * executable stack (GCC's nested functions) there must be a call. */
WL_GLOBAL int wl_is_return_address(struct wl_unwind* u, __u64 value) {
  if (!u) return 0;
  const struct wl_mapping* mapping = wl_find_mapping(&u->env, u->maps, u->map_count, value - 1);
  if (!mapping) return 0;
  int holds_stack = u->cursor.regs[WL_X64_RSP] - mapping->begin < mapping->end - mapping->begin;
  if (mapping->kind != WL_MAPPING_FILE && !holds_stack) return 1;
  if (wl_read(&u->env, u->room.call, 8, value - 8)) return 1; /* execute-only, or not present: not known */
  return wl_ends_with_call(u->room.call);
}

/* Is there a possible return address in the first `slots` words of the stack (below `top`)? 1 also if unreadable. */
WL_GLOBAL int wl_stack_top_returns(struct wl_unwind* u, __u64 top, __u32 slots) {
  if (!u) return 1;
  __u64 sp = u->cursor.regs[WL_X64_RSP];
  for (__u32 i = 0; i < WL_SLOTS_END; i++) {
    if (i >= slots || sp >= top) return 0;
    if (wl_read(&u->env, u->room.pair, 8, sp)) return i == 0;
    if (wl_is_return_address(u, u->room.pair[0])) return 1;
    sp += 8;
  }
  return 0;
}

#define WL_NEAR (1u << 20)

/* The certainty of a caller at `value` that the frame pointer led to, from a function that uses the frame pointer. The
 * call before `value` must lead to the function at the cursor. A direct call must lead to a place not far before the
 * pc; the begins of functions are not known here, and user space checks guesses again. An indirect call may lead
 * anywhere. So may a call in code generated ahead of time: V8's builtins for calls jump to the function. */
WL_GLOBAL int wl_call_certainty(struct wl_unwind* u, __u64 value) {
  if (!u || wl_read(&u->env, u->room.call, 8, value - 8)) return WL_GUESSED;
  const __u8* code = u->room.call;
  __u32 distance = (__u32)code[4] | (__u32)code[5] << 8 | (__u32)code[6] << 16 | (__u32)code[7] << 24;
  __u64 target = value + (__u64)(__s64)(__s32)distance;
  if (wl_ends_with_indirect_call(code)) return WL_CHECKED;
  if (code[3] != 0xe8) return WL_GUESSED;
  if (u->cursor.regs[WL_X64_RIP] - target < WL_NEAR) return WL_CHECKED;
  if (!u->generated || wl_find_rule(u, target) != WL_CONTINUE) return WL_GUESSED;
  return u->generated == WL_GENERATED_AHEAD ? WL_CHECKED : WL_GUESSED;
}

/* The caller's pc and rbp into the cursor. */
WL_INLINE int wl_commit_frame(struct wl_unwind* u, __u64 pc, __u64 sp, __u64 fp, __u32 certainty) {
  struct wl_cursor* cursor = &u->cursor;
  if (u->certainty < certainty) u->certainty = certainty;
  if (certainty == WL_CHECKED) u->steps |= WL_STEPS_BY_POINTER;
  cursor->regs[WL_X64_RIP] = pc;
  cursor->regs[WL_X64_RSP] = sp;
  cursor->regs[WL_X64_RBP] = fp;
  cursor->valid = WL_VALID_BASE | (1u << WL_X64_RBP);
  cursor->exact = 0;
  return WL_CONTINUE;
}

/* May the body rule, CFA = rbp + 16, be taken where the code says nothing certain? */
WL_INLINE int wl_trusts_frame_pointer(struct wl_unwind* u) {
  __u64 top = u->cursor.regs[WL_X64_RBP];
  __u32 slots = u->generated ? WL_SLOTS_GENERATED : WL_SLOTS_FILE;
  if (top == 0) {
    slots = WL_SLOTS_END;
    top = ~0ull;
  } else if (!u->cursor.exact) {
    /* It made a call, and generated code (V8, HotSpot) makes none without a frame. */
    if (u->generated || wl_code_uses_frame(u)) return 1;
  }
  return !wl_stack_top_returns(u, top, slots);
}

/* A step from code without a rule; u->generated says of which kind it is. */
WL_GLOBAL int wl_step_code(struct wl_unwind* u) {
  if (!u) return WL_END_INTERNAL;
  const struct wl_env* env = &u->env;
  struct wl_cursor* cursor = &u->cursor;
  __u64 sp = cursor->regs[WL_X64_RSP];
  __u64 fp = cursor->regs[WL_X64_RBP];
  int frame = WL_FRAME_UNKNOWN;
  if (!WL_VALID(cursor, WL_X64_RBP)) return WL_END_BAD_FRAME_POINTER;
  const __u8* at_pc = u->room.code + WL_CODE_BEFORE;
  if (!wl_read(env, u->room.code, WL_CODE_BYTES, cursor->regs[WL_X64_RIP] - WL_CODE_BEFORE)) {
    if (wl_code_is_restorer(at_pc) || wl_code_ends_restorer(at_pc)) return wl_step_signal(u, sp);
    if (cursor->exact) frame = wl_code_frame_at(at_pc);
    if (at_pc[0] == 0x48 && at_pc[1] == 0x83 && at_pc[2] == 0xc4 && at_pc[3] < 0x80 && at_pc[4] == 0xc3) {
      sp += at_pc[3]; /* add rsp, imm8; ret: no frame to pop */
      frame = WL_FRAME_AT_SP;
    }
  } else if (cursor->exact) {
    return WL_END_BAD_FRAME_POINTER;
  } else {
    __builtin_memset(u->room.code, 0, WL_CODE_BYTES);
  }

  if (frame == WL_FRAME_LOST) return WL_END_BAD_FRAME_POINTER;
  __u64* pair = u->room.pair;
  if (frame == WL_FRAME_AT_SP) {
    if (wl_read(env, &pair[1], 8, sp)) return WL_END_UNREADABLE_STACK;
    if (!wl_is_return_address(u, pair[1])) return WL_END_BAD_FRAME_POINTER;
    return wl_commit_frame(u, pair[1], sp + 8, fp, WL_PROVED);
  }
  if (frame == WL_FRAME_PUSHED) {
    fp = sp; /* as mov rbp, rsp is about to say, or pop rbp about to undo */
  } else {
    if (frame != WL_FRAME_BODY && !wl_trusts_frame_pointer(u)) return WL_END_BAD_FRAME_POINTER;
    if (fp == 0) return WL_END_GUESSED; /* psABI 3.4.1 marks the outermost frame so; it may be data */
  }
  if ((fp & 7) || fp < sp || fp - sp > WL_MAX_FRAME_SIZE) return WL_END_BAD_FRAME_POINTER;
  if (wl_read(env, pair, sizeof u->room.pair, fp)) return WL_END_BAD_FRAME_POINTER;
  if (pair[1] == 0) return WL_END_GUESSED;
  if (!wl_is_return_address(u, pair[1])) return WL_END_BAD_FRAME_POINTER;
  __u32 certainty = WL_PROVED;
  if (frame == WL_FRAME_UNKNOWN) certainty = wl_code_uses_frame(u) ? wl_call_certainty(u, pair[1]) : WL_GUESSED;
  return wl_commit_frame(u, pair[1], fp + 16, pair[0], certainty);
}

#endif
