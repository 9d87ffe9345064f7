// Scratch space of walkers. It is kept between walks, so that a walk allocates nothing. It is taken without locks, so
// that a walk can run in a signal handler, in a memory allocator, or in a handler that interrupted an allocator.
#pragma once

#include "walk/unwinders.h"

namespace windlass::walk {

// A Scratch for one walk alone. The first walks of a process get pages of the system (mmap, which is async-signal-safe
// on Linux), one Scratch for each walk that ever ran at the same time. Later walks get a returned one. Ends the program
// if there is no memory at all.
[[nodiscard]] Scratch* take_scratch();
void return_scratch(Scratch* scratch);

}  // namespace windlass::walk
