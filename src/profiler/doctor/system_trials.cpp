#include "profiler/doctor/system_trials.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "os/kallsyms.h"
#include "profiler/doctor/kernel_errors.h"
#include "profiler/doctor/kernel_types.h"
#include "profiler/doctor/online_cpus.h"

#include "windlass_filter_layout.h"
#include "windlass_process_layout.h"

// Has variables of these types.

#include "windlass.skel.h"

namespace windlass::profiler {
namespace {

struct FreeBtf {
  void operator()(btf* types) const { btf__free(types); }
};
using Btf = std::unique_ptr<btf, FreeBtf>;

// The errno of a call that gave a descriptor or a negative errno, which is closed again.
int outcome(int descriptor) {
  if (descriptor < 0) return -descriptor;
  close(descriptor);
  return 0;
}

int try_map(bpf_map_type type) {
  const bool ring = type == BPF_MAP_TYPE_RINGBUF;
  const auto page = static_cast<__u32>(sysconf(_SC_PAGESIZE));
  return outcome(bpf_map_create(type, "wl_trial", ring ? 0 : 4, ring ? 0 : 8, ring ? page : 1, nullptr));
}

// r0 = 0; exit
int load_nothing(bpf_prog_type type, bpf_prog_load_opts* options) {
  const bpf_insn code[] = {
      {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
      {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
  };
  return bpf_prog_load(type, "wl_trial", "GPL", code, 2, options);
}

int try_perf(pid_t process, int cpu, bool kernel) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_CPU_CLOCK;
  attr.sample_period = 1'000'000'000;
  attr.exclude_kernel = kernel ? 0 : 1;
  attr.exclude_hv = kernel ? 0 : 1;
  attr.disabled = 1;
  const auto fd = static_cast<int>(syscall(SYS_perf_event_open, &attr, process, cpu, -1, PERF_FLAG_FD_CLOEXEC));
  return outcome(fd < 0 ? -errno : fd);
}

TracepointTrial try_tracepoint(const std::string& name) {
  TracepointTrial trial{name, true, 0};
  const int program = load_nothing(BPF_PROG_TYPE_RAW_TRACEPOINT, nullptr);
  if (program < 0) {
    trial.error = -program;
    return trial;
  }
  trial.error = outcome(bpf_raw_tracepoint_open(name.c_str(), program));
  trial.known = trial.error != ENOENT;
  close(program);
  return trial;
}

// Hidden ones are shown as zeros; some real ones (of per-CPU data, first in the file) are zero, too.
bool sees_kernel_addresses() {
  constexpr int kEnough = 10'000;
  int seen = 0;
  bool found = false;
  std::string note;
  (void)os::for_each_kernel_symbol("/proc/kallsyms", note, [&](const os::KernelSymbol& symbol) {
    found = symbol.address != 0;
    return !found && ++seen < kEnough;
  });
  return found;
}

// Those that the programs are for, by their sections' names.
std::vector<std::string> used_tracepoints() {
  constexpr std::string_view kSection = "raw_tp/";
  std::vector<std::string> names;
  windlass_bpf* skeleton = windlass_bpf__open();
  if (skeleton == nullptr) return names;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    const std::string_view section = bpf_program__section_name(program);
    if (section.starts_with(kSection)) names.emplace_back(section.substr(kSection.size()));
  }
  windlass_bpf__destroy(skeleton);
  return names;
}

}  // namespace

int try_hook(const KernelTypes* kernel) {
  const LibbpfLog quiet;
  const std::uint32_t id = kernel != nullptr ? kernel->function(kHookedFunction) : 0;
  if (id == 0) return ENOENT;
  bpf_prog_load_opts options{};
  options.sz = sizeof options;
  options.expected_attach_type = BPF_TRACE_FENTRY;
  options.attach_btf_id = id;
  const int program = load_nothing(BPF_PROG_TYPE_TRACING, &options);
  if (program < 0) return -program;
  const int error = outcome(bpf_raw_tracepoint_open(nullptr, program));
  close(program);
  return error;
}

SystemTrials try_system(const SystemFacts& facts) {
  const LibbpfLog quiet;
  SystemTrials trials;
  const Btf types(btf__parse(facts.btf_path.c_str(), nullptr));
  if (types == nullptr)
    trials.btf = errno > 0 && errno < 4000 ? errno : EINVAL;  // libbpf has numbers of its own from 4000 on
  else if (btf__find_by_name_kind(types.get(), "task_struct", BTF_KIND_STRUCT) < 0)
    trials.btf = EINVAL;
  trials.map = try_map(BPF_MAP_TYPE_HASH);
  trials.ring_buffer = try_map(BPF_MAP_TYPE_RINGBUF);
  trials.program = outcome(load_nothing(BPF_PROG_TYPE_PERF_EVENT, nullptr));
  trials.perf_own = try_perf(0, -1, false);
  const std::vector<int> cpus = online_cpus();
  trials.perf_all = try_perf(-1, cpus.empty() ? 0 : cpus.front(), true);
  trials.kernel_addresses = sees_kernel_addresses();
  for (const std::string& name : used_tracepoints()) trials.tracepoints.push_back(try_tracepoint(name));
  const auto kernel = KernelTypes::read();
  trials.hook = try_hook(kernel ? &*kernel : nullptr);
  return trials;
}

}  // namespace windlass::profiler
