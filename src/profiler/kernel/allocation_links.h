// The BPF programs at the allocators of processes.
#pragma once

#include <cstdint>
#include <expected>
#include <vector>

#include "profiler/kernel/allocation_probes.h"

struct bpf_link;
struct windlass_bpf;

namespace windlass::profiler {

// Allocations of processes that run already: before the programs are loaded, then afterwards.
void prepare_allocations(windlass_bpf& skeleton, const AllocationProbes* probes, std::uint64_t period,
                         std::uint16_t event);
// In the probes' processes alone. An error is an errno.
[[nodiscard]] std::expected<void, int> attach_allocations(const windlass_bpf& skeleton, const AllocationProbes& probes,
                                                          std::vector<bpf_link*>& links);
// The same of one more process. Its places get numbers behind those of `known`, unless they are the same as a place
// there. A probe that is refused, or finds no room, is left out: the process may have ended.
void attach_more_allocations(const windlass_bpf& skeleton, AllocationProbes& known, const AllocationProbes& found,
                             std::vector<bpf_link*>& links);

}  // namespace windlass::profiler
