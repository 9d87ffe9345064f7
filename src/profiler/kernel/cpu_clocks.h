// The sampling interrupt: a software clock event on every CPU, each with the sampling program behind it.
#pragma once

#include <expected>
#include <vector>

#include "profiler/doctor/system_error.h"

struct bpf_link;
struct bpf_program;

namespace windlass::profiler {

// Not thread-safe.
class CpuClocks {
 public:
  CpuClocks() = default;
  ~CpuClocks() { stop(); }
  CpuClocks(const CpuClocks&) = delete;
  CpuClocks& operator=(const CpuClocks&) = delete;

  // `program` runs `frequency` times a second of every online CPU's time that is not idle.
  std::expected<void, SystemError> start(bpf_program* program, unsigned frequency);
  // No sample is taken after it.
  void stop();

 private:
  std::expected<void, SystemError> add(int cpu, bpf_program* program, unsigned frequency);

  std::vector<int> events_;  // closed by their links
  std::vector<bpf_link*> links_;
};

}  // namespace windlass::profiler
