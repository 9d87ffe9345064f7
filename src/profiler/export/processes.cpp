#include "profiler/export/processes.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace windlass::exporter {

namespace {

template <typename Weight>
std::vector<Process> weighted(const profile::Profile& profile, Weight weight_of_sample) {
  struct Seen {
    std::map<std::pair<bool, std::uint32_t>, std::uint64_t> names;  // (of the main thread, comm)
    std::uint64_t weight = 0;
  };
  std::map<std::uint32_t, Seen> seen;
  for (const profile::Sample& sample : profile.samples) {
    Seen& process = seen[sample.pid];
    process.names[{sample.tid == sample.pid, sample.comm}] += sample.count;
    process.weight += weight_of_sample(sample);
  }
  std::vector<Process> processes;
  for (const auto& [pid, process] : seen) {
    const auto& [best, count] = *std::ranges::max_element(
        process.names, {}, [](const auto& name) { return std::pair(name.first.first, name.second); });
    const std::string name = best.second < profile.strings.size() ? profile.strings[best.second] : "[unknown]";
    processes.push_back({pid, name, fmt::format("{} (pid {})", name, pid), process.weight});
  }
  std::ranges::stable_sort(processes, std::ranges::greater(), &Process::weight);
  return processes;
}

}  // namespace

std::vector<Process> processes_of(const profile::Profile& profile) {
  return weighted(profile, [](const profile::Sample& sample) { return sample.count; });
}

std::vector<Process> processes_of(const profile::Profile& profile, profile::ValueType type) {
  auto processes = weighted(profile, [&](const profile::Sample& sample) { return weight_of(profile, sample, type); });
  std::erase_if(processes, [](const Process& process) { return process.weight == 0; });
  return processes;
}

}  // namespace windlass::exporter
