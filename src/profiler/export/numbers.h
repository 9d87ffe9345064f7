// Numbers as people read them, the same in the report and on the page.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/export/call_tree.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// 1234567 -> "1,234,567"
[[nodiscard]] std::string grouped(std::uint64_t number);
// In a unit of profile::Event: 1234567 of "nanoseconds" -> "1.23 ms", of "bytes" -> "1.18 MiB", else as grouped().
[[nodiscard]] std::string amount(std::uint64_t number, const std::string& unit);
// Rounded; of what does not fit, the largest.
[[nodiscard]] std::uint64_t whole_number(double number);
// True if amount() names the unit, or there is none to name.
[[nodiscard]] bool says_unit(const std::string& unit);
// To two digits, as the record's summary, reports and the page show shares: rounded, but 100 only if nothing is left.
[[nodiscard]] double percent(std::uint64_t part, std::uint64_t whole);
// Samples a second and CPU; 0 if samples are not taken by time.
[[nodiscard]] double frequency_of(const profile::Event& event);
// The time of counted samples; 0 if they are not taken by time, or something else is summed.
[[nodiscard]] double seconds_of(const profile::Event& event, profile::ValueType type, const Totals& totals);
// "12,345 samples at 999 Hz in 10.0 s (12.4 s of CPU); 99.93% of the stacks whole; 0 lost". Of another event:
// "4.02 s of off-cpu in 10.0 s; 100.00% of it with whole stacks; 0 lost".
[[nodiscard]] std::string summary_line(const profile::Profile& profile, profile::ValueType type, const Totals& totals);

}  // namespace windlass::exporter
