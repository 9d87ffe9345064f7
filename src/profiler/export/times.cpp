#include "profiler/export/times.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "profiler/export/numbers.h"

namespace windlass::exporter {
namespace {

constexpr double kSecond = 1e9;

std::string seconds_text(std::uint64_t time) { return fmt::format("{:g} s", static_cast<double>(time) / kSecond); }

// An instant is in the range that it begins in; of a wait, the part that is there.
bool cut(profile::SampleTime& time, const TimeRange& range) {
  const std::uint64_t end = time.begin + time.lasted;
  if (time.lasted == 0) return time.begin >= range.begin && time.begin < range.end;
  if (end <= range.begin || time.begin >= range.end) return false;
  time.begin = std::max(time.begin, range.begin);
  time.lasted = std::min(end, range.end) - time.begin;
  return true;
}

// False: nothing of the sample is left.
bool narrow(profile::Profile& profile, profile::Sample& sample, const TimeRange& range, LeftOut& left_out) {
  const std::uint64_t per_time = profile.events[sample.event].per_time;
  const std::span<profile::SampleTime> times = times_of(profile, sample);
  left_out.without_time += sample.count - times.size() * per_time;
  std::uint64_t lasted = 0;
  std::uint32_t kept = 0;
  for (profile::SampleTime time : times) {
    if (cut(time, range)) {
      lasted += time.lasted;
      times[kept++] = time;
    } else {
      (time.begin < range.begin ? left_out.before : left_out.behind) += per_time;
    }
  }
  sample.times = kept;
  sample.count = kept * per_time;
  sample.value = std::min(lasted, sample.value);
  return kept != 0;
}

}  // namespace

LeftOut keep_times(profile::Profile& profile, const TimeRange& range) {
  LeftOut left_out;
  std::erase_if(profile.samples, [&](profile::Sample& sample) { return !narrow(profile, sample, range, left_out); });
  const std::uint64_t end = std::min(range.end, profile.duration_ns);
  profile.duration_ns = end > range.begin ? end - range.begin : 0;
  return left_out;
}

std::string text_of(const TimeRange& range, const LeftOut& left_out) {
  std::string text = "from " + seconds_text(range.begin);
  if (range.end != TimeRange{}.end) text += " to " + seconds_text(range.end);
  text += fmt::format("; left out: {} before", grouped(left_out.before));
  if (range.end != TimeRange{}.end) text += fmt::format(", {} behind", grouped(left_out.behind));
  if (left_out.without_time != 0) text += fmt::format(", {} without a time", grouped(left_out.without_time));
  return text;
}

}  // namespace windlass::exporter
