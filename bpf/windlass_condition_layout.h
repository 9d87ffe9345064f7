/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The filter of a tracepoint's event: conditions on the fields of its record. Each condition names the one that is
 * looked at next, if it holds and if not. The next one stands behind it, so a filter ends after as many as it has.
 */
#ifndef WINDLASS_CONDITION_LAYOUT_H
#define WINDLASS_CONDITION_LAYOUT_H

#include "windlass_types.h"

#define WL_MAX_CONDITIONS 16u
#define WL_MAX_CONDITION_TEXT 64u /* with the zero at its end */

enum wl_condition_next { WL_CONDITION_PASS = 254, WL_CONDITION_LEAVE_OUT = 255 };

enum wl_comparison { WL_EQUAL, WL_LESS, WL_AT_MOST, WL_HAS_BIT };

enum wl_field_kind {
  WL_FIELD_UNSIGNED,
  WL_FIELD_SIGNED,
  WL_FIELD_TEXT,        /* an array of char in the record */
  WL_FIELD_TEXT_AT,     /* its place from the record's begin, in the low 16 bits of the field (__data_loc) */
  WL_FIELD_TEXT_BEHIND, /* its place from the field's end, likewise (__rel_loc) */
};

struct wl_condition {
  __u16 offset; /* of the field, in the record */
  __u8 size;    /* of the field; of a text at most WL_MAX_CONDITION_TEXT */
  __u8 kind;    /* wl_field_kind */
  __u8 comparison;
  __u8 if_true, if_false; /* a condition's number, or wl_condition_next */
  __u8 reserved;
  __u64 value[WL_MAX_CONDITION_TEXT / 8]; /* a number in the first; a text with zeroes behind */
};

struct wl_conditions {
  __u32 count, reserved; /* 0: everything passes */
  struct wl_condition of[WL_MAX_CONDITIONS];
};

#endif
