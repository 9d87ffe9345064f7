// One PERF_RECORD_SAMPLE of a perf.data file, taken apart (perf_event_open(2), PERF_RECORD_SAMPLE).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/import/perf_file.h"
#include "windlass/bytes.h"
#include "windlass/error.h"
#include "windlass/registers.h"

namespace windlass::importer {

struct PerfReadValue {
  std::uint64_t value = 0, id = 0;
};

struct PerfSampleRecord {
  std::uint32_t attr = 0;  // of PerfFile::attrs
  std::uint32_t pid = 0, tid = 0;
  std::uint64_t ip = 0;
  std::optional<std::uint64_t> period{};
  std::vector<PerfReadValue> group{};     // of a group that is read with each sample: what all members have counted
  bool in_kernel = false;                 // `ip` is
  std::vector<std::uint64_t> kernel{};    // innermost first: an instruction, then return addresses
  std::vector<std::uint64_t> user{};      // the same, by the kernel's walk along frame pointers
  std::vector<std::uint64_t> branches{};  // the processor's call stack: the call instructions, innermost first
  std::optional<Registers> registers{};   // of the user side, for unwinding
  bool narrow = false;                    // a 32-bit process
  std::uint64_t stack_address = 0;
  ByteView stack{};
};

[[nodiscard]] Expected<PerfSampleRecord> parse_perf_sample(const PerfFile& file, ByteView record);

// The architecture that stacks of the recording are unwound for; none for other machines.
[[nodiscard]] std::optional<Architecture> architecture_of(const PerfFile& file);

}  // namespace windlass::importer
