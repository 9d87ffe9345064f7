// Who samples a machine that is busy has to be scheduled on it.
#pragma once

namespace windlass::profiler {

// Gives this thread, and those it starts from now on, the highest priority there is, if it may and nobody has lowered
// it: loading the programs and the tables takes half a second of CPU time, a share of which would be left beside a
// hundred threads of the program to record for as long as it runs.
void raise_priority();

}  // namespace windlass::profiler
