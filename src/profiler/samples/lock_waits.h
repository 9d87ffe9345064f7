// Which waits are for a lock.
#pragma once

#include <span>

#include "profiler/kernel/event_specs.h"
#include "profiler/profile/profile.h"

namespace windlass::profiler {

// A futex is not only a lock: condition variables, semaphores, barriers and joins wait by it, too. The function that
// waits tells which it is, so the profile's frames have names. Of a recording with the event "lock" its samples are
// waits that may be for a lock; those that are not go. If "off-cpu" was recorded, too, the samples are all of
// "off-cpu", and those of locks are given to "lock" as well. Wakers stay where `events` wants them. A wait by a futex
// may be for a lock if its stack has no frame of the process. So it is kept, as the truncated stack that it is.
// O(samples).
void take_locks(profile::Profile& profile, std::span<const EventSpec> events);

}  // namespace windlass::profiler
