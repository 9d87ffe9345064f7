#include "profiler/kernel/perf_counters.h"

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

perf_event_attr cpu_clock(unsigned frequency) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_CPU_CLOCK;
  attr.freq = 1;
  attr.sample_freq = frequency;
  attr.exclude_idle = 1;
  return attr;
}

std::expected<void, SystemError> PerfCounters::start(bpf_program* program, const perf_event_attr& event,
                                                     std::uint64_t number, const Explain& explain) {
  const std::size_t before = events_.size();
  for (const int cpu : online_cpus()) {
    perf_event_attr attr = event;
    const int fd = static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
    const int error = errno;
    if (fd < 0) {
      stop();
      return std::unexpected(explain(error));
    }
    bpf_perf_event_opts options{};
    options.sz = sizeof options;
    options.bpf_cookie = number;
    bpf_link* link = bpf_program__attach_perf_event_opts(program, fd, &options);
    if (link == nullptr) {
      const int reason = errno;
      close(fd);
      stop();
      return std::unexpected(
          system_error(fmt::format("sampling cannot start on CPU {}: {}", cpu, std::strerror(reason)), reason));
    }
    events_.push_back(fd);
    links_.push_back(link);
  }
  if (events_.size() != before) return {};
  return std::unexpected(
      system_error("no CPU could be sampled: none that /sys/devices/system/cpu/online names is online", ENODEV));
}

void PerfCounters::stop() {
  for (const int event : events_) ioctl(event, PERF_EVENT_IOC_DISABLE, 0);
  for (bpf_link* link : links_) bpf_link__destroy(link);  // closes the perf event too
  links_.clear();
  events_.clear();
}

}  // namespace windlass::profiler
