/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef WINDLASS_MEMO_ENTRY_H
#define WINDLASS_MEMO_ENTRY_H

#include "windlass_types.h"

#define WL_MEMO_ENTRIES 8192u

/* windlass_memo.h says what is in it. */
struct wl_memo_entry {
  __u64 tag;
  __u64 value;
};

struct wl_memo {
  struct wl_memo_entry entries[WL_MEMO_ENTRIES];
};

#endif
