// Who samples a machine that is busy has to be scheduled on it.
#pragma once

namespace windlass::profiler {

// Gives this thread, and all threads that it starts later, the highest priority, if that is allowed and the priority
// has not been lowered. Loading programs and tables takes half a second of CPU time. At normal priority beside a
// hundred busy threads, loading would last for the whole run of the recorded program.
void raise_priority();

}  // namespace windlass::profiler
