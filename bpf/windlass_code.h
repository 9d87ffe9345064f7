/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Code without a row (generated code, assembly without CFI): a guarded frame-pointer step. A blind one from a prologue
 * or a frameless function skips a caller and still looks complete, so the code at the pc is read and must say where
 * the frame is; where it does not, the answer is WL_END_BAD_FRAME_POINTER and the sample goes to user space.
 */
#ifndef WINDLASS_CODE_H
#define WINDLASS_CODE_H

#include "windlass_step.h"

/* Is there an executable mapping at the return address `pc`, and a call instruction before it? */
WL_INLINE int wl_is_return_address(const struct wl_env *env, __u32 maps, __u32 map_count, __u64 pc) {
  if (!wl_find_mapping(env, maps, map_count, pc - 1)) return 0;
  __u8 code[8] = {0}; /* the 7 bytes before pc */
  if (wl_read(env, code, 7, pc - 7)) return 1; /* execute-only or not present: cannot be told */
  if (code[2] == 0xe8) return 1;               /* call rel32 */
  /* ff /2: call r/m, 2 to 7 bytes; mod and rm say how long it is */
  for (int length = 2; length <= 7; length++) {
    if (code[7 - length] != 0xff) continue;
    __u8 modrm = code[(8 - length) & 7];
    if (((modrm >> 3) & 7) == 2) return 1;
  }
  return 0;
}

/* CFA = rbp + 16, return address at CFA - 8, caller's rbp at CFA - 16. */
WL_NOINLINE int wl_step_frame_pointer(const struct wl_env *env, __u32 maps, __u32 map_count,
                                      struct wl_cursor *cursor) {
  __u64 sp = cursor->regs[WL_X64_RSP];
  __u64 fp = cursor->regs[WL_X64_RBP];
  if (!WL_VALID(cursor, WL_X64_RBP)) return WL_END_BAD_FRAME_POINTER;
  if (fp == 0) return WL_END_COMPLETE;
  if ((fp & 7) || fp < sp || fp - sp > WL_MAX_FRAME_SIZE) return WL_END_BAD_FRAME_POINTER;
  __u64 pair[2] = {0};
  if (wl_read(env, pair, sizeof pair, fp)) return WL_END_BAD_FRAME_POINTER;
  if (pair[1] == 0) return WL_END_COMPLETE;
  if (!wl_is_return_address(env, maps, map_count, pair[1])) return WL_END_BAD_FRAME_POINTER;
  cursor->regs[WL_X64_RIP] = pair[1];
  cursor->regs[WL_X64_RSP] = fp + 16;
  cursor->regs[WL_X64_RBP] = pair[0];
  cursor->valid = WL_VALID_BASE | (1u << WL_X64_RBP);
  cursor->exact = 0;
  return WL_CONTINUE;
}

WL_INLINE int wl_step_code(const struct wl_env *env, __u32 maps, __u32 map_count, struct wl_cursor *cursor) {
  if (cursor->exact) return WL_END_BAD_FRAME_POINTER;
  return wl_step_frame_pointer(env, maps, map_count, cursor);
}

#endif
