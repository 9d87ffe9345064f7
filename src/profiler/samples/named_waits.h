// What the names of its frames say of a profile's waits.
#pragma once

#include <span>

#include "profiler/kernel/event_specs.h"
#include "profiler/profile/profile.h"
#include "profiler/samples/lock_waits.h"
#include "profiler/samples/scheduler_frames.h"
#include "profiler/samples/waker_frames.h"

namespace windlass::profiler {

// To be called once, when the addresses of a recording of `events` have names: a wait ends where the thread called the
// scheduler, a waker where it woke, and waits for locks are told from others. O(samples).
inline void settle_named_waits(profile::Profile& profile, std::span<const EventSpec> events) {
  leave_out_scheduler(profile);
  leave_out_waking(profile);
  take_locks(profile, events);
}

}  // namespace windlass::profiler
