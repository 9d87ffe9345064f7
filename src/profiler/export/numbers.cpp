#include "profiler/export/numbers.h"

#include <algorithm>

#include <fmt/format.h>

namespace windlass::exporter {

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string amount(std::uint64_t number, const std::string& unit) {
  struct Step {
    double least;
    const char* text;
  };
  static constexpr Step kTimes[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {0, "ns"}};
  static constexpr Step kBytes[] = {{1024. * 1024 * 1024, "GiB"}, {1024. * 1024, "MiB"}, {1024, "KiB"}, {0, "B"}};
  if (unit != "nanoseconds" && unit != "bytes") return grouped(number);
  const Step* step = unit == "bytes" ? kBytes : kTimes;
  const auto real = static_cast<double>(number);
  while (real < step->least) ++step;
  if (step->least == 0) return fmt::format("{} {}", number, step->text);
  const double part = real / step->least;
  return fmt::format("{:.{}f} {}", part, part < 9.995 ? 2 : part < 99.95 ? 1 : 0, step->text);
}

double frequency_of(const profile::Event& event) {
  return event.period == 0 || event.unit != "nanoseconds" ? 0 : 1e9 / static_cast<double>(event.period);
}

std::string summary_line(const profile::Profile& profile, profile::ValueType type, const Totals& totals) {
  const profile::Event& event = profile.events[type.event];
  if (totals.samples == 0) return fmt::format("no {}; {} lost", event.counted, grouped(profile.lost));
  const double frequency = frequency_of(event);
  std::string text = fmt::format("{} {}{}", amount(totals.samples, unit_of(profile, type)), type.counts ? "" : "of ",
                                 name_of(profile, type));
  if (frequency != 0) text += fmt::format(" at {:.0f} Hz", frequency);
  if (profile.duration_ns != 0) text += fmt::format(" in {:.1f} s", static_cast<double>(profile.duration_ns) / 1e9);
  if (frequency != 0 && type.counts)
    text += fmt::format(" ({:.1f} s of CPU)",
                        static_cast<double>(totals.samples) * static_cast<double>(event.period) / 1e9);
  // Rounded down: 100% only when every stack is whole.
  const std::uint64_t whole = totals.samples - totals.truncated - totals.chained;
  const auto per_10000 =
      static_cast<unsigned>(1e4 * (static_cast<double>(whole) / static_cast<double>(totals.samples)));
  const unsigned shown = whole == totals.samples ? 10000 : std::min(per_10000, 9999u);
  text += fmt::format("; {}.{:02}% of {}", shown / 100, shown % 100,
                      type.counts ? "the stacks whole" : "it with whole stacks");
  if (totals.chained != 0)
    text += fmt::format(", {:.2f}% chained by frame pointers",
                        100 * static_cast<double>(totals.chained) / static_cast<double>(totals.samples));
  text += fmt::format("; {} lost", grouped(profile.lost));
  return text;
}

}  // namespace windlass::exporter
