// Who samples a machine that is busy has to be scheduled on it.
#pragma once

namespace windlass::profiler {

// Gives this thread, and those it starts from now on, the highest priority there is, if it may and nobody has lowered
// it: loading the programs and the tables takes half a second of CPU time, a share of which would be left beside a
// hundred threads of the program to record for as long as it runs.
//
// With autogroups (sched(7)) a thread's priority counts within its session alone, and the session's among the others.
// `alone`: this process starts nobody else's programs. Where it is also the first of its session (a service, a
// container, setsid), the session gets the highest priority, too. Other sessions have a shell in them, whose programs
// would get it all.
void raise_priority(bool alone);

// Of a thread that was started since, whose work can wait: the usual priority.
void restore_priority();

}  // namespace windlass::profiler
