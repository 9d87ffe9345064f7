// Scratch space of walkers. It is kept between walks, so that a walk allocates nothing. It is taken without locks, so
// that a walk can run in a signal handler, in a memory allocator, or in a handler that interrupted an allocator.
#pragma once

#include "walk/unwinders.h"

namespace windlass::walk {

// One that nobody else has. The first walks of a process (as many as ever ran at a time) get pages of the system for it
// (mmap, which is async-signal-safe on Linux); later ones what an earlier walk returned. Ends the program where there
// is no memory at all.
[[nodiscard]] Scratch* take_scratch();
void return_scratch(Scratch* scratch);

}  // namespace windlass::walk
