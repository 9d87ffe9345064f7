// The events of a recording: which number each has, in its samples and in the profile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/kernel/event_specs.h"
#include "profiler/profile/profile.h"

namespace windlass::profiler {

enum class AllocationEvents : std::uint8_t { kNone, kAllocated, kAllocatedAndInUse };

struct RecordingEvents {
  // What the kernel side records comes first, in the order of `specs`. `frequency`: samples a second of CPU time.
  static RecordingEvents of(std::span<const EventSpec> specs, unsigned frequency, AllocationEvents allocations) {
    RecordingEvents events;
    for (const EventSpec& spec : specs) events.list.push_back(profile_event(spec, frequency));
    if (allocations == AllocationEvents::kNone) return events;
    events.allocated = static_cast<std::uint16_t>(events.list.size());
    // The names that pprof's heap profiles have.
    events.list.push_back({.name = "alloc_space", .unit = "bytes", .counted = "alloc_objects"});
    if (allocations == AllocationEvents::kAllocated) return events;
    events.in_use = static_cast<std::uint16_t>(events.list.size());
    events.list.push_back({.name = "inuse_space", .unit = "bytes", .counted = "inuse_objects"});
    return events;
  }

  std::vector<profile::Event> list;
  std::uint16_t allocated = 0, in_use = 0;  // 0: these are not recorded
};

}  // namespace windlass::profiler
