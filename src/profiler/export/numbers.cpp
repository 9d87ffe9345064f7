#include "profiler/export/numbers.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/shown.h"

namespace windlass::exporter {

namespace {

// 0: no unit of time.
double nanoseconds_in(const std::string& unit) {
  return unit == "nanoseconds"    ? 1
         : unit == "microseconds" ? 1e3
         : unit == "milliseconds" ? 1e6
         : unit == "seconds"      ? 1e9
                                  : 0;
}

}  // namespace

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
  const double scale = unit == "bytes" ? 1 : nanoseconds_in(unit);
  if (scale == 0) return grouped(number);
  const Step* step = unit == "bytes" ? kBytes : kTimes;
  const double real = static_cast<double>(number) * scale;
  while (real < step->least) ++step;
  if (step->least == 0) return fmt::format("{:.0f} {}", real, step->text);
  const double part = real / step->least;
  return fmt::format("{:.{}f} {}", part, part < 9.995 ? 2 : part < 99.95 ? 1 : 0, step->text);
}

double percent(std::uint64_t part, std::uint64_t whole) {
  const double share = 100 * static_cast<double>(part) / static_cast<double>(whole);
  return part == whole ? 100 : std::min(share, 99.99);
}

std::uint64_t whole_number(double number) {
  constexpr double kMost = 18446744073709549568.0;  // the largest double below 2^64
  return static_cast<std::uint64_t>(std::round(std::clamp(number, 0.0, kMost)));
}

bool says_unit(const std::string& unit) { return unit == "count" || unit == "bytes" || nanoseconds_in(unit) != 0; }

double frequency_of(const profile::Event& event) {
  const double period = static_cast<double>(event.period) * nanoseconds_in(event.unit);
  return period == 0 ? 0 : 1e9 / period;
}

double seconds_of(const profile::Event& event, profile::ValueType type, const Totals& totals) {
  const double frequency = frequency_of(event);
  return frequency == 0 || !type.counts ? 0 : static_cast<double>(totals.samples) / frequency;
}

std::string summary_line(const profile::Profile& profile, profile::ValueType type, const Totals& totals) {
  const profile::Event& event = event_of(profile, type);
  if (totals.samples == 0) return fmt::format("no {}; {} lost", shown(event.counted), grouped(profile.lost));
  const double frequency = frequency_of(event);
  const std::string& unit = unit_of(profile, type);
  std::string text = fmt::format("{}{} {}{}", amount(totals.samples, unit), says_unit(unit) ? "" : " " + shown(unit),
                                 type.counts ? "" : "of ", shown(name_of(profile, type)));
  if (frequency != 0) text += fmt::format(" at {:.0f} Hz", frequency);
  if (profile.duration_ns != 0) text += fmt::format(" in {:.1f} s", static_cast<double>(profile.duration_ns) / 1e9);
  if (const double seconds = seconds_of(event, type, totals); seconds != 0)
    text += fmt::format(" ({:.1f} s of {})", seconds, event.name == "cpu" ? "CPU" : shown(event.name));
  if (!profile.ends_known)
    return text + fmt::format("; not known whether the stacks are whole; {} lost", grouped(profile.lost));
  const std::uint64_t whole = totals.samples - totals.truncated - totals.chained;
  text += fmt::format("; {:.2f}% of {}", percent(whole, totals.samples),
                      type.counts ? "the stacks whole" : "it with whole stacks");
  if (totals.chained != 0)
    text += fmt::format(", {:.2f}% chained by frame pointers", percent(totals.chained, totals.samples));
  text += fmt::format("; {} lost", grouped(profile.lost));
  return text;
}

}  // namespace windlass::exporter
