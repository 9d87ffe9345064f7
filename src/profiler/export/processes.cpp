#include "profiler/export/processes.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace windlass::exporter {

std::vector<Process> processes_of(const profile::Profile& profile, profile::ValueType type) {
  struct Seen {
    std::map<std::pair<bool, std::uint32_t>, std::uint64_t> names;  // (of the main thread, comm)
    std::uint64_t weight = 0;
  };
  std::map<std::uint32_t, Seen> seen;
  for (const profile::Sample& sample : profile.samples) {
    const std::uint64_t weight = weight_of(profile, sample, type);
    if (weight == 0) continue;
    Seen& process = seen[sample.pid];
    process.names[{sample.tid == sample.pid, sample.comm}] += weight;
    process.weight += weight;
  }
  std::vector<Process> processes;
  for (const auto& [pid, process] : seen) {
    const auto& [best, count] = *std::ranges::max_element(
        process.names, {}, [](const auto& name) { return std::pair(name.first.first, name.second); });
    const std::string name = best.second < profile.strings.size() ? profile.strings[best.second] : "[unknown]";
    processes.push_back({pid, fmt::format("{} (pid {})", name, pid), process.weight});
  }
  std::ranges::stable_sort(processes, std::ranges::greater(), &Process::weight);
  return processes;
}

}  // namespace windlass::exporter
