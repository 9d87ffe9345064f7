// The events of a recording: which number each has, in its samples and in the profile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/profile/profile.h"
#include "profiler/samples/wait_reasons.h"

namespace windlass::profiler {

struct RecordingEvents {
  // `frequency`: samples a second of CPU time. Waits are always number 1, which the kernel side knows.
  static RecordingEvents of(unsigned frequency, bool waits, bool allocations) {
    RecordingEvents events;
    events.list.push_back({.period = 1'000'000'000 / std::max(frequency, 1u)});
    if (waits) events.list.push_back({.name = kWaitEvent, .unit = "nanoseconds", .counted = "waits"});
    if (!allocations) return events;
    events.allocated = static_cast<std::uint16_t>(events.list.size());
    // The names that pprof's heap profiles have.
    events.list.push_back({.name = "alloc_space", .unit = "bytes", .counted = "alloc_objects"});
    events.in_use = static_cast<std::uint16_t>(events.list.size());
    events.list.push_back({.name = "inuse_space", .unit = "bytes", .counted = "inuse_objects"});
    return events;
  }

  std::vector<profile::Event> list;
  std::uint16_t allocated = 0, in_use = 0;  // 0: allocations are not recorded
};

}  // namespace windlass::profiler
