// Who samples a machine that is busy has to be scheduled on it.
#pragma once

namespace windlass::os {

// Gives this thread, and all threads that it starts later, the highest priority, if that is allowed and the priority
// has not been lowered. Loading programs and tables takes half a second of CPU time. At normal priority beside a
// hundred busy threads, loading would last for the whole run of the recorded program.
//
// With autogroups (sched(7)) a priority counts within the session alone. The session itself gets the highest priority,
// too, if `alone` and this process is the first of its session (a service, a container, setsid). `alone`: this process
// starts no program of others. The session of a shell is left alone, since its programs would get the priority.
void raise_priority(bool alone);

// For a thread that was started later and may wait: the usual priority.
void restore_priority();

}  // namespace windlass::os
