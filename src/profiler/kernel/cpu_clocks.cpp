#include "profiler/kernel/cpu_clocks.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "profiler/doctor/kernel_errors.h"
#include "profiler/doctor/online_cpus.h"

namespace windlass::profiler {

std::expected<void, SystemError> CpuClocks::start(bpf_program* program, unsigned frequency) {
  for (const int cpu : online_cpus()) {
    if (auto added = add(cpu, program, frequency); !added) {
      stop();
      return added;
    }
  }
  if (!events_.empty()) return {};
  return std::unexpected(
      system_error("no CPU could be sampled: none that /sys/devices/system/cpu/online names is online", ENODEV));
}

std::expected<void, SystemError> CpuClocks::add(int cpu, bpf_program* program, unsigned frequency) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_CPU_CLOCK;
  attr.freq = 1;
  attr.sample_freq = frequency;
  attr.exclude_idle = 1;
  const int event = static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
  if (event < 0) return std::unexpected(explain_perf_error(errno, frequency));
  bpf_link* link = bpf_program__attach_perf_event(program, event);
  if (link == nullptr) {
    const int error = errno;
    close(event);
    return std::unexpected(
        system_error(fmt::format("sampling cannot start on CPU {}: {}", cpu, std::strerror(error)), error));
  }
  events_.push_back(event);
  links_.push_back(link);
  return {};
}

void CpuClocks::stop() {
  for (const int event : events_) ioctl(event, PERF_EVENT_IOC_DISABLE, 0);
  for (bpf_link* link : links_) bpf_link__destroy(link);  // closes the perf event too
  links_.clear();
  events_.clear();
}

}  // namespace windlass::profiler
