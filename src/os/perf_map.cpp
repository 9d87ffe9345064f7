#include "os/perf_map.h"

#include <unistd.h>

#include <charconv>
#include <ctime>
#include <optional>

#include <fmt/format.h>

#include "os/living_thread.h"
#include "os/proc_file.h"

namespace windlass::os {
namespace {

bool take_hex(std::string_view& line, std::uint64_t& value) {
  const auto begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return false;
  line.remove_prefix(begin);
  if (line.starts_with("0x")) line.remove_prefix(2);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value, 16);
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  return error == std::errc() && !line.empty() && (line[0] == ' ' || line[0] == '\t');
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// When a process began, in seconds of the wall clock: `starttime` of /proc/PID/stat (proc(5)), in ticks since the boot.
std::optional<double> start_of_process(pid_t pid) {
  constexpr unsigned kStartTime = 22;
  const std::string stat = read_proc_file(fmt::format("/proc/{}/stat", pid));
  const std::string_view field = stat_field(stat, kStartTime);
  std::uint64_t ticks = 0;
  if (std::from_chars(field.data(), field.data() + field.size(), ticks).ec != std::errc()) return std::nullopt;
  const double since_boot = static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME) + since_boot;
}

}  // namespace

bool is_left_behind(const struct stat& map, pid_t pid) {
  constexpr double kForgiven = 2;
  const std::optional<double> start = start_of_process(pid);
  return start && static_cast<double>(map.st_mtim.tv_sec) + kForgiven < *start;
}

std::string perf_map_path(pid_t pid) {
  const std::string status = read_proc_file(fmt::format("/proc/{}/status", pid));
  const std::string_view ids = status_field(status, "NSpid");
  if (ids.empty()) return fmt::format("/tmp/perf-{}.map", pid);
  return fmt::format("/proc/{}/root/tmp/perf-{}.map", living_thread(pid), ids.substr(ids.find_last_of("\t ") + 1));
}

std::optional<PerfMapLine> parse_perf_map_line(std::string_view line) {
  PerfMapLine parsed;
  if (!take_hex(line, parsed.begin) || !take_hex(line, parsed.size) || line.size() < 2) return std::nullopt;
  parsed.name = line.substr(1);
  return parsed;
}

}  // namespace windlass::os
