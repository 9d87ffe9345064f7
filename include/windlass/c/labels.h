/* Windlass, labels for threads, the C interface: a program says what a thread works on, and profilers tell the samples
 * of one request from those of another. C99 and C++. Linux.
 *
 * For example, around the work for a request:
 *
 *   static uint32_t route;
 *   windlass_add_label_key("http.route", &route); (once)
 *
 *   windlass_set_thread_label(route, "/cart");
 *   ...
 *   windlass_set_thread_label(route, NULL);
 *
 * `windlass record` gives each sample the labels that its thread has at that moment. Other profilers read the labels,
 * too: they are stored as OpenTelemetry's thread context (OTEP 4947), and the names of the keys in its process context
 * (OTEP 4719). <windlass/labels.h> has the same for C++.
 *
 * The conventions of c/windlass.h hold here. Functions are in libwindlass.so and in the static library. Programs that
 * link the static library export the variable: -Wl,--export-dynamic-symbol=otel_thread_ctx_v1. The CMake target
 * windlass::windlass does so.
 *
 * If another library of the process publishes either context, labels are not set: WINDLASS_UNSUPPORTED.
 *
 * Threads and signals: a thread's labels end with the thread. A new thread has none. After fork() the child has the
 * labels of the thread that forked. [signal] functions fail with WINDLASS_LIMIT in a handler that has interrupted one
 * of them in the same thread. A library that was loaded by dlopen() gets its storage for a thread at the first call in
 * that thread. That call is not [signal]. */
#ifndef WINDLASS_C_LABELS_H
#define WINDLASS_C_LABELS_H

#include <stddef.h>
#include <stdint.h>

#include "windlass/c/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WINDLASS_MAX_LABEL_KEYS 64u   /* In a process. */
#define WINDLASS_MAX_LABEL_NAME 128u  /* Bytes of a key. */
#define WINDLASS_MAX_LABEL_VALUE 255u /* Bytes of a value. */
#define WINDLASS_MAX_LABEL_BYTES 612u /* All values of a thread, with 2 bytes more for each. */

/* The number of a key, which is new or has been added before. Keys are never removed. WINDLASS_INVALID for an empty
 * name; WINDLASS_LIMIT if the name is too long, or there are too many keys; WINDLASS_SYSTEM if the names cannot be
 * shared with profilers. [any] */
WINDLASS_API windlass_status windlass_add_label_key(const char* name, uint32_t* key);

/* Gives the calling thread a label, in place of the one with the same key. NULL, or an empty text, removes the label.
 * WINDLASS_INVALID for a number that windlass_add_label_key() has not given; WINDLASS_LIMIT if the value is too long,
 * or the thread has no room for more. [signal] */
WINDLASS_API windlass_status windlass_set_thread_label(uint32_t key, const char* value);

/* Copies the value of the calling thread's label, with a NUL behind. `size`: bytes at `value`, at least
 * WINDLASS_MAX_LABEL_VALUE + 1. An empty text if the thread has no such label. [signal] */
WINDLASS_API windlass_status windlass_thread_label(uint32_t key, char* value, size_t size);

/* Says which trace and span of a distributed trace the calling thread works on, in W3C's form. NULL for both: none.
 * [signal] */
WINDLASS_API windlass_status windlass_set_thread_trace(const uint8_t trace_id[16], const uint8_t span_id[8]);

/* Removes all labels of the calling thread, and its trace. [signal] */
WINDLASS_API windlass_status windlass_clear_thread_labels(void);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_C_LABELS_H */
