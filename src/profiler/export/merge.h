// Several profiles as one.
#pragma once

#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

// Adds the samples of `from`. Modules, functions, locations and events that both have stay one. An event has the same
// name, unit and period. Durations and lost samples add up; the earlier start stays.
// The result has no times: these count from the start of one recording. What is shown is what `to` shows.
void merge_into(profile::Profile& to, const profile::Profile& from);

// An error if the samples of an event, or CPU and waiting time together, add up to more than 64 bits.
[[nodiscard]] Expected<void> check_sums(const profile::Profile& profile);

}  // namespace windlass::exporter
