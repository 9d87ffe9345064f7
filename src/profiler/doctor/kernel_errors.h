// What the kernel refuses, in words that name the way out.
#pragma once

#include <string>

#include "profiler/doctor/system_error.h"
#include "windlass/error.h"

namespace windlass::profiler {

// While alive, the messages of libbpf on this thread go here. The youngest log of the thread gets them; logs end in the
// reverse order. Messages without a log are dropped.
class LibbpfLog {
 public:
  LibbpfLog();
  ~LibbpfLog();
  LibbpfLog(const LibbpfLog&) = delete;
  LibbpfLog& operator=(const LibbpfLog&) = delete;
  // All of it, a rejected program's verifier log included: at most some 16 MiB a program, as libbpf keeps it.
  [[nodiscard]] std::string text() const { return text_; }

  void add(const std::string& message) { text_ += message; }

 private:
  LibbpfLog* outer_;
  std::string text_;
};

// Each looks at the system again (system_probe.h) to tell what is behind the errno. `btf`: as in KernelSideOptions.
[[nodiscard]] SystemError explain_load_error(int error, const std::string& log, const std::string& btf = {});
[[nodiscard]] SystemError explain_tracepoint_error(int error, const std::string& program, const std::string& btf = {});
[[nodiscard]] SystemError explain_perf_error(int error, unsigned frequency);
// Of an event that people chose.
[[nodiscard]] SystemError explain_event_error(const std::string& event, int error);
// Of the probes on a process's allocator.
[[nodiscard]] SystemError explain_allocation_error(int error);
// Sampling a user's own processes without BPF.
[[nodiscard]] SystemError explain_own_perf_error(int error, unsigned frequency);
// The same for an event of a thread's switches, which are the kernel's.
[[nodiscard]] SystemError explain_own_switch_error(const std::string& event, int error);
// Mapping the ring of a perf event.
[[nodiscard]] SystemError explain_perf_ring_error(int error);

// The kernel side's memory: `detail` is an errno.
[[nodiscard]] SystemError explain_memory_error(const Error& error);

// Where no probe finds a cause: an errno and the log say what it must be. Apart for the tests.
[[nodiscard]] SystemError load_error_without_cause(int error, const std::string& log, const std::string& release,
                                                   const std::string& machine);

}  // namespace windlass::profiler
