// Where the allocations of a process that runs already can be seen: the static probes of an allocator that takes
// samples itself, or the functions of its allocator.
//
// The probes are those of OpenTelemetry (opentelemetry-ebpf-profiler, design document 00003):
//   otel_memory:alloc(ptr, size, weighted_bytes) for a sample, otel_memory:free(ptr) before a sampled block is freed.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

#include "profiler/doctor/system_error.h"
#include "windlass_allocation_layout.h"

namespace windlass::profiler {

struct AllocationProbe {
  std::uint32_t tgid = 0;
  std::string file;
  std::uint64_t offset = 0, semaphore = 0;  // in the file; semaphore 0: there is none
  wl_allocation_place place{};
};

struct AllocationProbes {
  std::vector<AllocationProbe> probes;
  std::vector<wl_code_range> functions;  // as wl_allocation_place counts them
  std::vector<std::string> remarks;      // how each process is watched, and what that costs
  // Blocks are followed until they are freed. The probes of functions do not see the addresses of blocks.
  [[nodiscard]] bool follows_blocks() const;
};

// An error: of one of `processes` that has neither. One of `children` is left out then.
[[nodiscard]] std::expected<AllocationProbes, SystemError> find_allocation_probes(
    std::span<const std::uint32_t> processes, std::span<const std::uint32_t> children = {});

// What one file has, for the tests: with `path` as the file of all probes. False if that is nothing.
[[nodiscard]] bool add_sampler_probes(const std::string& path, std::uint32_t tgid, AllocationProbes& to);
[[nodiscard]] bool add_function_probes(const std::string& path, std::uint32_t tgid, AllocationProbes& to);

}  // namespace windlass::profiler
