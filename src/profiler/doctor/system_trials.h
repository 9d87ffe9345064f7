// What the system lets this process do, found out by doing it in small: a map, a program, an event of each kind that
// recording needs. Nothing stays.
#pragma once

#include <string>
#include <vector>

#include "profiler/doctor/system_facts.h"

namespace windlass::profiler {

class KernelTypes;

struct TracepointTrial {
  std::string name;
  bool known = false;  // to the kernel's type information
  int error = 0;       // of loading a program for it and attaching it
};

// Each number is an errno, 0 where it works.
struct SystemTrials {
  int btf = 0;                    // reading the type information
  int map = 0;                    // bpf(2), BPF_MAP_CREATE: a hash
  int ring_buffer = 0;            // and the ring buffer's
  int program = 0;                // BPF_PROG_LOAD of a sampler that does nothing
  int perf_own = 0;               // the software clock of this process, user space only
  int perf_all = 0;               // the software clock of all processes on a CPU, with the kernel
  bool kernel_addresses = false;  // /proc/kallsyms shows them, and not zeros
  std::vector<TracepointTrial> tracepoints;
  int hook = 0;  // attaching a program to a function of the kernel, kHookedFunction
};

// Called for all memory that becomes executable. Not all kernels let a program be attached to a function (AArch64's
// before 6.4 do not, nor such without CONFIG_FUNCTION_TRACER), so recording does without.
inline constexpr const char* kHookedFunction = "perf_event_mmap";
// 0 or an errno. `kernel`: its types; null: they cannot be read.
[[nodiscard]] int try_hook(const KernelTypes* kernel);

[[nodiscard]] SystemTrials try_system(const SystemFacts& facts);

}  // namespace windlass::profiler
