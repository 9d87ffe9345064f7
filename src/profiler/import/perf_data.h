// A recording of `perf record` as a profile: call chains of the kernel's, the processor's (LBR), or unwound here from
// registers and a copy of the stack (`--call-graph dwarf`).
//
// Each event with samples becomes an event. Times of clocks are in nanoseconds; other events are counted. Addresses
// have no names yet: symbolize() gives them.
#pragma once

#include <string>
#include <vector>

#include "profiler/import/perf_code.h"
#include "profiler/import/profile_builder.h"
#include "windlass/bytes.h"
#include "windlass/error.h"

namespace windlass::importer {

struct PerfProfile {
  profile::Profile profile;
  bool running_kernel = false;       // kernel addresses are those of the kernel that runs here now
  std::vector<std::string> notes{};  // what could not be read and why, for people
};

[[nodiscard]] Expected<PerfProfile> read_perf_data(ByteView bytes, const Limits& limits = {},
                                                   const PerfFilePlaces& places = {});

}  // namespace windlass::importer
