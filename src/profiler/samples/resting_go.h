// Where the goroutine's stack is of a thread of Go that waits on another stack: that of the scheduler, or of C code.
#pragma once

#include <cstdint>

#include "windlass_event_layout.h"

namespace windlass::profiler {

// The lowest byte in use of that stack; 0: the thread is none of Go (x86-64), is on that stack already, or runs no
// goroutine. The event gets the words that lead to the stack, as wl_emit_raw() writes them. Where the thread keeps its
// g is looked for: the stack's bounds, with which a g begins, show whether a word is one. Reads the process's memory,
// for a thread of another program about as often as its thread-local memory has pointers.
[[nodiscard]] std::uint64_t find_goroutine_stack(wl_raw_event& event);

}  // namespace windlass::profiler
