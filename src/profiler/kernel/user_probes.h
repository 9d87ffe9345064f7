// The BPF programs at places in processes' code, and at tracepoints of the kernel.
#pragma once

#include <cstdint>
#include <expected>
#include <vector>

#include "profiler/kernel/allocation_probes.h"
#include "profiler/kernel/event_specs.h"

struct bpf_link;
struct bpf_program;
struct windlass_bpf;

namespace windlass::profiler {

// `number`: of the event, which the program is told. Null and errno if it cannot.
[[nodiscard]] bpf_link* attach_tracepoint(const bpf_program& program, const EventSpec& event, std::uint64_t number);
// In every process that runs the file.
[[nodiscard]] bpf_link* attach_probe(const bpf_program& program, const EventSpec& event, std::uint64_t number);
// A static probe may be at several places. A kernel that does not know semaphores (before 4.20) refuses them. An error
// is an errno; the links until then are in `links`.
[[nodiscard]] std::expected<void, int> attach_static_probe(const bpf_program& program, const EventSpec& event,
                                                           std::uint64_t number, std::vector<bpf_link*>& links);

// Allocations of processes that run already: before the programs are loaded, then afterwards.
void prepare_allocations(windlass_bpf& skeleton, const AllocationProbes* probes, std::uint64_t period,
                         std::uint16_t event);
// In the probes' processes alone. An error is an errno.
[[nodiscard]] std::expected<void, int> attach_allocations(const windlass_bpf& skeleton, const AllocationProbes& probes,
                                                          std::vector<bpf_link*>& links);

}  // namespace windlass::profiler
