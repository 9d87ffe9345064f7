// The processes that a profile has samples of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

struct Process {
  std::uint32_t pid = 0;
  // The name that its main thread, or if that was not seen any of its threads, had in most samples.
  std::string comm;
  std::string name;          // "node (pid 12)"
  std::uint64_t weight = 0;  // of its samples
};

// All processes, by descending count of their samples.
[[nodiscard]] std::vector<Process> processes_of(const profile::Profile& profile);
// Those with values of `type`, by descending weight. A process has the same name for each type.
[[nodiscard]] std::vector<Process> processes_of(const profile::Profile& profile, profile::ValueType type);

}  // namespace windlass::exporter
