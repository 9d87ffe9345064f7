// A profile narrowed to a part of the time of its recording.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

// In ns since the recording's start: [begin, end).
struct TimeRange {
  std::uint64_t begin = 0;
  std::uint64_t end = ~std::uint64_t{0};
};

// What keep_times() has taken away, in the counts of the samples.
struct LeftOut {
  std::uint64_t before = 0, behind = 0;
  std::uint64_t without_time = 0;
};

// Leaves the samples of this time, and the part of waits that lies in it: a wait counts if any of it does. The
// profile's duration becomes that of the range, its times stay what they are. The profile has times.
LeftOut keep_times(profile::Profile& profile, const TimeRange& range);

// "from 1 s to 2.5 s; left out: 12 before, 34 behind, 5 without a time"
[[nodiscard]] std::string text_of(const TimeRange& range, const LeftOut& left_out);

}  // namespace windlass::exporter
