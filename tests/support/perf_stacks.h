// Stacks of a program as perf sees them, with the code of the program's jitdump.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/run_command.h"

namespace windlass::test {

struct PerfStacks {
  std::string skipped;   // why perf cannot record here
  CommandResult script;  // of `perf script`
  std::vector<std::string> stacks;
};

// `program` runs in `folder`, where its jitdump is written.
inline PerfStacks perf_stacks(const std::string& folder, const std::string& program) {
  PerfStacks seen;
  const auto skipped = [&](const std::string& why) {
    seen.skipped = "SKIPPED: " + why;
    return seen;
  };
  if (run("command -v perf").status != 0) return skipped("there is no perf (package linux-perf)");
  const auto record = fmt::format(
      "cd '{}' && perf record -q -k mono -e cpu-clock -F 199 --call-graph dwarf,16384 -o raw {} 2>&1", folder, program);
  auto recorded = run(record);
  if (recorded.status != 0) recorded = run(record);  // perf 6.1 crashes now and then where it reads build ids
  if (recorded.status != 0) return skipped("perf cannot record here: " + recorded.output.substr(0, 200));
  seen.script =
      run(fmt::format("cd '{}' && JITDUMPDIR=. perf inject --jit -i raw -o injected 2>&1 && perf script -i "
                      "injected -F comm,ip,sym 2>&1",
                      folder));
  std::istringstream lines(seen.script.output);
  bool within = false;
  for (std::string line; std::getline(lines, line); within = !line.empty()) {
    if (line.empty()) continue;
    if (!within) seen.stacks.emplace_back();
    seen.stacks.back() += line + "\n";
  }
  return seen;
}

}  // namespace windlass::test
