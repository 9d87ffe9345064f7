#include "profiler/export/numbers.h"

#include <fmt/format.h>

namespace windlass::exporter {

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

double frequency_of(const profile::Profile& profile) {
  return profile.period_ns == 0 ? 0 : 1e9 / static_cast<double>(profile.period_ns);
}

std::string summary_line(const profile::Profile& profile, const Totals& totals) {
  if (totals.samples == 0) return fmt::format("no samples; {} lost", grouped(profile.lost));
  std::string text = fmt::format("{} samples", grouped(totals.samples));
  if (profile.period_ns != 0) text += fmt::format(" at {:.0f} Hz", frequency_of(profile));
  if (profile.duration_ns != 0) text += fmt::format(" in {:.1f} s", static_cast<double>(profile.duration_ns) / 1e9);
  if (profile.period_ns != 0)
    text += fmt::format(" ({:.1f} s of CPU)",
                        static_cast<double>(totals.samples) * static_cast<double>(profile.period_ns) / 1e9);
  // Rounded down: 100% only when every stack is whole.
  const std::uint64_t per_10000 = (totals.samples - totals.truncated - totals.chained) * 10000 / totals.samples;
  text += fmt::format("; {}.{:02}% of the stacks whole", per_10000 / 100, per_10000 % 100);
  if (totals.chained != 0)
    text += fmt::format(", {:.2f}% chained by frame pointers",
                        100 * static_cast<double>(totals.chained) / static_cast<double>(totals.samples));
  text += fmt::format("; {} lost", grouped(profile.lost));
  return text;
}

}  // namespace windlass::exporter
