// Numbers as people read them, the same in the report and on the page.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/export/call_tree.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// 1234567 -> "1,234,567"
[[nodiscard]] std::string grouped(std::uint64_t number);
// Samples a second and CPU, 0 if the period is unknown.
[[nodiscard]] double frequency_of(const profile::Profile& profile);
// "12,345 samples at 999 Hz in 10.0 s (12.4 s of CPU); 99.93% of the stacks whole; 0 lost"
[[nodiscard]] std::string summary_line(const profile::Profile& profile, const Totals& totals);

}  // namespace windlass::exporter
