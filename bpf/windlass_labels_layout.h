/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Where a program keeps the labels that it sets for its own threads, and the event that has them.
 *
 * OpenTelemetry's thread context: OTEP 4947, oteps/profiles/4947-thread-ctx.md of
 * open-telemetry/opentelemetry-specification. Go: runtime/pprof/label.go, and runtime/map.go of Go 1.23 and before.
 */
#ifndef WINDLASS_LABELS_LAYOUT_H
#define WINDLASS_LABELS_LAYOUT_H

#include "windlass_types.h"

/* How the labels of a thread are found. The first four lead to OpenTelemetry's pointer to a record. */
enum wl_label_kind {
  WL_LABELS_NONE = 0,
  WL_LABELS_OFFSET = 1,     /* At the thread's pointer + offset. */
  WL_LABELS_OFFSET_AT = 2,  /* The word at `place` is the offset (initial exec). */
  WL_LABELS_INDEX = 3,      /* At `place` are a module's number and the offset in its storage (general dynamic). */
  WL_LABELS_DESCRIPTOR = 4, /* The word behind `place` is the offset, or the address of such an index (TLSDESC). */
  WL_LABELS_GO_MAP = 5,     /* Of the goroutine: a map, to Go 1.23. */
  WL_LABELS_GO_SLICE = 6,   /* A slice, from Go 1.24 on. */
};

struct wl_label_variable {
  __u64 place;
  __s64 offset;
};

/* From the thread's pointer to the labels of its goroutine: [[[[fs.base + first] + m] + current] + labels]. */
struct wl_go_labels {
  __s64 first;
  __u16 m;
  __u16 current;
  __u16 labels;
  __u16 reserved;
};

struct wl_label_source {
  __u16 kind;     /* wl_label_kind */
  __u8 with_ids;  /* The ids of trace and span are labels, too. */
  __u8 dtv_entry; /* Bytes of an entry in the thread's vector of modules' storage. */
  __s32 dtv;      /* The vector's address is at the thread's pointer + dtv. */
  union {
    struct wl_label_variable variable;
    struct wl_go_labels go;
  };
};

#define WL_MAX_ATTRIBUTES 612u  /* Bytes: the record has 640 at most, as OTEP 4947 recommends. */
#define WL_ATTRIBUTE_WORDS 128u /* A power of two. */
#define WL_CONTEXT_HEAD 28u     /* Bytes of a record before its attributes. */
struct wl_thread_context {
  __u32 reserved;
  /* As it is in the process: */
  __u8 trace_id[16];
  __u8 span_id[8];
  __u8 valid; /* 1: it is. */
  __u8 trace_flags;
  __u16 size;                           /* Bytes of attributes. */
  __u64 attributes[WL_ATTRIBUTE_WORDS]; /* A key's number, the value's length, the value; and so on. */
};

/* Longer texts lose their ends. */
#define WL_GO_KEY 56u
#define WL_GO_VALUE 128u
#define WL_GO_LABELS 8u /* A power of two. */
struct wl_go_label {
  __u32 key_size;
  __u32 value_size;
  __u8 key[WL_GO_KEY];
  __u8 value[WL_GO_VALUE];
};

/* What a wl_label_event has behind its begin. */
union wl_label_text {
  struct wl_thread_context context;
  struct wl_go_label go[WL_GO_LABELS];
};

#endif
