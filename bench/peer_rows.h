/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * The peers' design, for comparison: rows of 16 bytes sorted by address, one array a module, searched by halving for
 * every frame of every sample.
 */
#ifndef WINDLASS_PEER_ROWS_H
#define WINDLASS_PEER_ROWS_H

#include <linux/types.h>

enum peer_cfa { PEER_CFA_END, PEER_CFA_RSP, PEER_CFA_RBP, PEER_CFA_PLT, PEER_CFA_OTHER };
enum peer_fp { PEER_FP_SAME, PEER_FP_CFA };

struct peer_row {
  __u64 pc; /* as the module numbers it; the row holds until the next */
  __u8 cfa;
  __u8 fp;
  __s16 fp_offset;
  __s32 cfa_offset;
};

struct peer_module {
  __u32 first, count; /* its rows */
};

struct peer_mapping {
  __u64 begin, end, bias;
  __u32 module, reserved;
};

struct peer_stats {
  __u64 samples, frames, complete;
};

#define PEER_MAX_MAPPINGS 4096u
#define PEER_FRAMES 1024u

#endif
