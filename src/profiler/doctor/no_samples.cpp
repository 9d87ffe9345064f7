#include "profiler/doctor/no_samples.h"

#include <fmt/format.h>

#include <charconv>

#include "os/proc_file.h"

namespace windlass::profiler {

std::string explain_no_samples(const NoSamples& facts) {
  const std::string none = fmt::format("no samples in {:.1f} s", facts.seconds);
  if (facts.ended_before)
    return none +
           ": what was to be recorded had ended before sampling began. Way out: record -- CMD, which holds a "
           "command until it is sampled";
  if (facts.lost != 0)
    return fmt::format("{}: {} were lost, as the event ring was full. Way out: a lower -F", none, facts.lost);
  if (facts.user_space_only)
    return none +
           ": at no clock tick was it in user space, and without BPF the kernel is not sampled, nor a program that "
           "gained privileges by exec (set-user-id). Way out: record longer, or with sudo";
  if (facts.filtered)
    return none +
           ": no thread passes the filters, or none of them ran. Way out: fewer of --comm, --uid, --cgroup, "
           "--container and --exclude";
  if (!facts.timed)
    return none + ": none of these events happened in what was recorded. Way out: record longer, or another -e";
  // So many periods of CPU time without a single tick are no accident.
  constexpr double kManyPeriods = 20;
  if (facts.cpu_seconds && *facts.cpu_seconds * facts.frequency >= kManyPeriods)
    return fmt::format(
        "{}, although what was recorded used {:.2f} s of CPU time: {} clock ticks met other processes. Way "
        "out: please report it with the output of windlass doctor -v",
        none, *facts.cpu_seconds, facts.ticks);
  if (facts.cpu_seconds && *facts.cpu_seconds * facts.frequency >= 1)
    return fmt::format(
        "{}: what was recorded used {:.3f} s of CPU time, and none of {} clock ticks, one in {:.3f} s, fell into it. "
        "Way "
        "out: record longer, or a higher -F",
        none, *facts.cpu_seconds, facts.ticks, 1.0 / facts.frequency);
  if (facts.cpu_seconds)
    return fmt::format(
        "{}: what was recorded used too little CPU time ({:.3f} s; one sample is taken in {:.3f} s). Way "
        "out: record longer, or a higher -F",
        none, *facts.cpu_seconds, 1.0 / facts.frequency);
  if (facts.ticks == 0) return none + ": nothing ran on any CPU when the clock ticked. Way out: record longer";
  return fmt::format("{}: none of {} clock ticks met what was recorded. Way out: record longer, or a higher -F", none,
                     facts.ticks);
}

std::optional<double> parse_cpu_seconds(const std::string& stat, long ticks_a_second) {
  constexpr unsigned kUserTime = 14, kChildrenSystemTime = 17;  // utime, stime, cutime, cstime
  if (ticks_a_second <= 0) return std::nullopt;
  double sum = 0;
  for (unsigned number = kUserTime; number <= kChildrenSystemTime; ++number) {
    const std::string_view field = os::stat_field(stat, number);
    long value = 0;
    if (std::from_chars(field.data(), field.data() + field.size(), value).ec != std::errc()) return std::nullopt;
    sum += static_cast<double>(value);
  }
  return sum / static_cast<double>(ticks_a_second);
}

}  // namespace windlass::profiler
