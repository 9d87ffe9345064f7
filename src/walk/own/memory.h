// Which of the own memory is known to be readable: the calling thread's stack within limits that are kept; anything
// else is probed by a system call first.
#pragma once

#include <cstdint>

#include "base/reads_stacks.h"

namespace windlass::walk {

// Memory known to be readable: [low, high), high >= low.
struct StackRange {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t size) const {
    return address >= low && address <= high && size <= high - address;
  }
};

// The part of the calling thread's stacks from `sp` on that is known to be readable; empty if nothing is known. `live`:
// a frame of the caller stands at sp, so at least its page is readable. Otherwise sp is believed only if it was seen
// readable or, once, if a system call says so.
//
// The initial thread's stack is known: the kernel keeps 128 MiB below its top free of anything else. For other stacks,
// the results of probes are kept, two a thread. They are believed for the thread's own stack. They are believed for
// another stack (a coroutine's, a signal handler's) while the walk stands on it.
[[nodiscard]] StackRange known_stack(std::uint64_t sp, bool live);

// Makes `range` reach up to address + size if all between is readable, and remembers it for the thread. One system call
// for 256 pages that are new; a thread's stack is probed ahead, four times as far as it is known.
[[nodiscard]] bool extend(StackRange& range, std::uint64_t address, std::uint64_t size);

// Whether [address, address + size) is readable. One system call for 256 pages.
[[nodiscard]] bool readable(std::uint64_t address, std::uint64_t size);

// Whether the byte at an address can be read. A system call or two; signal-safe; keeps errno.
[[nodiscard]] bool probe(std::uint64_t address);

// What tells threads apart without a system call.
[[nodiscard]] std::uint64_t thread_pointer();

}  // namespace windlass::walk
