// Why a recording has no samples. The program is blamed only where its own CPU time says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace windlass::profiler {

struct NoSamples {
  double seconds = 0;       // of the recording
  unsigned frequency = 1;   // samples a second of CPU time
  bool filtered = false;    // by name, user or cgroup
  bool timed = true;        // the CPU's clock is among the events
  std::uint64_t ticks = 0;  // times the kernel side was called, whatever was running
  std::uint64_t lost = 0;
  std::optional<double> cpu_seconds = {};  // what was recorded has used, where that is known
  bool user_space_only = false;
  bool ended_before = false;  // nothing of what was to be recorded was alive any more when sampling began
};

[[nodiscard]] std::string explain_no_samples(const NoSamples& facts);

// utime + stime of a process and the children it has waited for, in seconds, from the text of /proc/PID/stat (proc(5)).
[[nodiscard]] std::optional<double> parse_cpu_seconds(const std::string& stat, long ticks_a_second);

}  // namespace windlass::profiler
