// Events of perf on every CPU, each with a program behind it: the sampling interrupt, page faults, cycles.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <vector>

#include "profiler/doctor/system_error.h"

struct bpf_link;
struct bpf_program;
struct perf_event_attr;

namespace windlass::profiler {

// The software clock: `frequency` times a second of a CPU's time that is not idle.
[[nodiscard]] perf_event_attr cpu_clock(unsigned frequency);

// Not thread-safe.
class PerfCounters {
 public:
  PerfCounters() = default;
  ~PerfCounters() { stop(); }
  PerfCounters(const PerfCounters&) = delete;
  PerfCounters& operator=(const PerfCounters&) = delete;

  // `program` runs with the event on every online CPU; it finds `number` as its cookie. `explain`: what an errno of
  // perf_event_open(2) means.
  using Explain = std::function<SystemError(int error)>;
  std::expected<void, SystemError> start(bpf_program* program, const perf_event_attr& event, std::uint64_t number,
                                         const Explain& explain);
  // No sample is taken after it.
  void stop();

 private:
  std::vector<int> events_;  // closed by their links
  std::vector<bpf_link*> links_;
};

}  // namespace windlass::profiler
