/* Windlass, stacks with names, the C interface: functions, inlined calls, source lines, and the functions that
 * interpreters run. In libwindlass-symbols.so, which needs libdw. It works alone, and beside libwindlass.so. C99 and
 * C++.
 *
 * For example, to print where this thread is:
 *
 *   windlass_print_stack(2);
 *
 * And every thread of a process, a core file or a minidump:
 *
 *   windlass_print_stacks("1234", 1, &error);
 *
 * windlass/stack.h describes a stack. The conventions of c/windlass.h hold here. Functions are [any], and none is
 * [signal]. This library knows the code of a manager, of a perf map and of a jitdump. It does not know code that
 * windlass_add_own_code() of libwindlass.so has added. */
#ifndef WINDLASS_C_STACK_H
#define WINDLASS_C_STACK_H

#include <stddef.h>
#include <stdint.h>

#include "windlass/c/symbols.h"
#include "windlass/c/windlass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A frame with names. */
typedef struct windlass_named_frame {
  size_t size;
  uint64_t pc;
  uint64_t sp;
  uint32_t origin;    /* WINDLASS_ORIGIN_... */
  uint32_t certainty; /* WINDLASS_CERTAINTY_... */
  uint32_t flags;     /* WINDLASS_RETURN_ADDRESS, WINDLASS_SIGNAL_FRAME, or 0. */
  uint32_t reserved;
  const windlass_named_address* names;
} windlass_named_frame;

/* The stack of a thread. All of it is valid during the callback. */
typedef struct windlass_named_stack {
  size_t size;
  uint64_t thread;         /* The system's thread id. */
  const char* thread_name; /* The name may be empty. */
  const char* text;        /* The stack as lines for people. */
  uint32_t end;            /* WINDLASS_END_... */
  uint32_t flags;          /* WINDLASS_FAULTED, or 0. */
  /* frames[0] is the innermost frame. */
  const windlass_named_frame* const* frames;
  size_t frame_count;
} windlass_named_stack;

/* Called for each stack. Nonzero ends the call. */
typedef int (*windlass_named_stack_callback)(const windlass_named_stack* stack, void* user);

/* Writes the stack of the calling thread to a file descriptor. The first frame is the caller. Fails with
 * WINDLASS_SYSTEM if the stack cannot be written, and with WINDLASS_NO_MEMORY. */
WINDLASS_API windlass_status windlass_print_stack(int fd);
/* Calls `callback` with the stack of the calling thread. The first frame is the caller. Fails with
 * WINDLASS_NO_MEMORY. */
WINDLASS_API windlass_status windlass_own_named_stack(windlass_named_stack_callback callback, void* user);
/* Calls `callback` for each thread of a process, a core file or a minidump. `what` is a process id in digits, or a
 * path. The threads of a process are stopped during the whole call. `error` may be NULL. Fails as
 * windlass_open_process() and windlass_open_core(). */
WINDLASS_API windlass_status windlass_named_stacks(const char* what, windlass_named_stack_callback callback, void* user,
                                                   windlass_error* error);
/* Writes the same to a file descriptor, with a line before each stack: the thread's id and name. */
WINDLASS_API windlass_status windlass_print_stacks(const char* what, int fd, windlass_error* error);

#ifdef __cplusplus
}
#endif

#endif /* WINDLASS_C_STACK_H */
