/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Every sample ends in exactly one of these. One list for the kernel side, the agent and the profiles it writes:
 * X(name, text for people). It stands apart from the other layouts for those who read profiles and know of no kernel.
 * COMPLETE is proven; docs/explanation/certainty.md says how. A stack with a guessed frame is never complete. CHAINED:
 * all frames are there, but some only by an intact chain of frame pointers.
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
  X(GUESSED, "a frame is a guess")                             \
  X(CHAINED, "chained")                                        \
  X(NO_TIME, "no time was left to unwind it")                  \
  X(SILENT, "memory or a file of the process does not answer") \
  X(NO_CODE, "its code could not be read")                     \
  X(NO_ROOM, "no room was left in the profile")

enum wl_end {
#define WL_END_ENUM(name, text) WL_END_##name,
  WL_ENDS(WL_END_ENUM)
#undef WL_END_ENUM
      WL_END_COUNT
};

/* How sure a frame is the caller of the frame before; the surest first. The numbers are those of
 * windlass::FrameCertainty. A sample has the certainty of its least certain frame. X(name, text for people) */
#define WL_CERTAINTIES(X)                                                            \
  X(DESCRIBED, "described") /* by a row */                                           \
  X(PROVED, "proved")       /* by the code */                                        \
  X(CHECKED, "checked")     /* by a frame pointer that is used, and the call fits */ \
  X(CHAINED, "chained")     /* by an intact chain of frame pointers alone */         \
  X(GUESSED, "guessed")     /* none of these */

enum wl_certainty {
#define WL_CERTAINTY_ENUM(name, text) WL_##name,
  WL_CERTAINTIES(WL_CERTAINTY_ENUM)
#undef WL_CERTAINTY_ENUM
      WL_CERTAINTY_COUNT
};

#endif
