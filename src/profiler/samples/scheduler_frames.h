// The kernel's own frames by which a thread leaves its CPU, and those of the program that looks at it there.
#pragma once

#include "profiler/profile/profile.h"

namespace windlass::profiler {

// Takes the frames up to schedule() off the waits of a profile whose kernel frames have names: they are the same in
// all. What called it stays: futex_do_wait(), do_nanosleep(). O(samples).
void leave_out_scheduler(profile::Profile& profile);

}  // namespace windlass::profiler
