// Two profiles as the one that a page of differences shows.
#pragma once

#include "base/json_writer.h"
#include "profiler/export/diff.h"
#include "profiler/export/frames.h"
#include "profiler/export/page_table.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// The samples of both: those of A have event 0, those of B event 1. Counts are sums of the value that is compared.
// Labels are left out, except those that stand above threads' names. The names of threads are left out if the profiles
// have none in common.
[[nodiscard]] profile::Profile both_sides(const ProfileDifference& difference, const profile::Profile& a,
                                          const profile::Profile& b);

// The member "diff" of the page's names: both sides, and the numbers of each function. `frames` and `table` are of
// both_sides().
void write_page_difference(const ProfileDifference& difference, const profile::Profile& a, const profile::Profile& b,
                           const DiffOptions& options, const profile::Profile& both, const Frames& frames,
                           const PageTable& table, JsonWriter& json);

}  // namespace windlass::exporter
