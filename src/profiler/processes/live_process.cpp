#include "profiler/processes/live_process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "os/proc_file.h"
#include "profiler/doctor/no_samples.h"
#include "profiler/doctor/system_probe.h"
#include "profiler/processes/process_table.h"

namespace windlass::profiler {

LifeStatus parse_life_status(std::string_view text) {
  const auto number = [&](std::string_view name, auto& value) {
    const std::string_view digits = os::status_field(text, name);
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
  };
  LifeStatus status;
  number("Tgid", status.tgid);
  number("PPid", status.parent);
  number("Threads", status.threads);
  if (const std::string_view state = os::status_field(text, "State"); !state.empty()) status.state = state[0];
  return status;
}

LifeStatus read_life_status(std::uint32_t pid) {
  return parse_life_status(os::read_proc_file(fmt::format("/proc/{}/status", pid)));
}

bool process_exists(std::uint32_t tgid) { return kill(static_cast<pid_t>(tgid), 0) == 0 || errno != ESRCH; }

std::vector<std::uint32_t> descendants_of(const std::vector<std::uint32_t>& processes) {
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> children;
  for (const std::uint32_t pid : list_processes()) children[read_life_status(pid).parent].push_back(pid);
  std::vector<std::uint32_t> found;
  std::unordered_set<std::uint32_t> seen(processes.begin(), processes.end());
  std::vector<std::uint32_t> todo = processes;
  while (!todo.empty()) {
    const std::uint32_t parent = todo.back();
    todo.pop_back();
    for (const std::uint32_t child : children[parent]) {
      if (!seen.insert(child).second) continue;
      found.push_back(child);
      todo.push_back(child);
    }
  }
  return found;
}

std::optional<double> cpu_seconds_of(std::uint32_t tgid) {
  return parse_cpu_seconds(os::read_proc_file(fmt::format("/proc/{}/stat", tgid)), sysconf(_SC_CLK_TCK));
}

std::optional<double> cpu_seconds_of_children() {
  rusage used{};
  if (getrusage(RUSAGE_CHILDREN, &used) != 0) return std::nullopt;
  const auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return in_seconds(used.ru_utime) + in_seconds(used.ru_stime);
}

std::expected<std::uint32_t, SystemError> find_target(std::uint32_t pid, const SystemFacts& facts) {
  const LifeStatus status = read_life_status(pid);
  if (status.tgid == 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM)
    return std::unexpected(refuse_target(facts, pid, true, EPERM));
  if (!status.alive()) return std::unexpected(system_error(fmt::format("there is no process {}", pid), ESRCH));
  std::string maps;
  errno = 0;
  if (!ProcessTable::read_proc_maps(status.tgid, maps) && (errno == EACCES || errno == EPERM))
    return std::unexpected(refuse_target(facts, pid, false, errno));
  return status.tgid;
}

}  // namespace windlass::profiler
