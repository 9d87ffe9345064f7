/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Every sample ends in exactly one of these. One list for the kernel side, the agent and the profiles it writes:
 * X(name, text for people). It stands apart from windlass_layout.h for those who read profiles and know of no kernel.
 */
#ifndef WINDLASS_ENDS_H
#define WINDLASS_ENDS_H

#define WL_ENDS(X)                                             \
  X(COMPLETE, "complete")                                      \
  X(NO_PROCESS, "process not yet known")                       \
  X(NO_MAPPING, "no mapping")                                  \
  X(PENDING, "table not ready")                                \
  X(NO_ROW, "no row")                                          \
  X(UNREADABLE_STACK, "unreadable stack")                      \
  X(UNSUPPORTED_EXPRESSION, "unsupported expression")          \
  X(REGISTER_LOST, "register not tracked")                     \
  X(BAD_FRAME_POINTER, "no table and no usable frame pointer") \
  X(NO_PROGRESS, "stack does not advance")                     \
  X(OTHER_MACHINE, "32-bit code, or of another machine")       \
  X(DEPTH, "deeper than the frame limit")                      \
  X(KERNEL_ONLY, "kernel thread")                              \
  X(INTERNAL, "internal error")                                \
  X(GUESSED, "outermost frame is a guess")

enum wl_end {
#define WL_END_ENUM(name, text) WL_END_##name,
  WL_ENDS(WL_END_ENUM)
#undef WL_END_ENUM
      WL_END_COUNT
};

#endif
