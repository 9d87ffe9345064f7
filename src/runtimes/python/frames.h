// What a thread of a CPython runs, read as the kernel side reads it (windlass_interpreter.h).
#pragma once

#include <cstdint>
#include <vector>

#include "manager/interpreter.h"
#include "windlass/error.h"
#include "windlass/walk.h"
#include "windlass_layout.h"

namespace windlass::runtimes::python {

// All that the thread runs, innermost first. kNotFound: nothing, the thread is not known to CPython, or there are
// several interpreters; or it cannot be read.
[[nodiscard]] Expected<std::vector<manager::InterpretedFrame>> read_frames(const Memory& memory,
                                                                           const wl_interpreter& list,
                                                                           std::uint64_t thread);

// The identity that what is at an address has now. kUnreadable.
[[nodiscard]] Expected<std::uint32_t> identity_of(const Memory& memory, const wl_interpreter& list, std::uint64_t code);

}  // namespace windlass::runtimes::python
