#include "profiler/doctor/kernel_errors.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/shown.h"
#include "profiler/doctor/program_stats.h"
#include "profiler/doctor/system_probe.h"
#include "windlass_table_layout.h"

namespace windlass::profiler {
namespace {

thread_local LibbpfLog* current_log = nullptr;

__attribute__((format(printf, 2, 0))) int keep_message(libbpf_print_level level, const char* format,
                                                       std::va_list arguments) {
  if (level == LIBBPF_DEBUG && std::getenv("WINDLASS_BPF_LOG") == nullptr) return 0;
  std::va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (size <= 0) return 0;
  std::string message(static_cast<std::size_t>(size) + 1, '\0');
  std::vsnprintf(message.data(), message.size(), format, arguments);
  message.pop_back();
  if (std::getenv("WINDLASS_BPF_LOG") != nullptr) std::fputs(shown_lines(message).c_str(), stderr);
  if (level != LIBBPF_DEBUG && current_log != nullptr) current_log->add(message);
  return 0;
}

// The first probe that is refused, as an error; nothing if all is well as far as probes see.
bool find_cause(const std::string& btf, SystemError& error) {
  const SystemFacts facts = read_system_facts(btf);
  const std::vector<Probe> probes = judge(facts, try_system(facts));
  const Probe* probe = first_refused(probes);
  if (probe == nullptr) return false;
  error.text = refusal_text(*probe);
  error.kind = probe->kind;
  return true;
}

// Did the limit of open files do it? Then libbpf and the verifier may say anything: a program whose type information
// was not loaded for want of a descriptor is invalid. Loading takes some 50, and some for each CPU.
bool for_want_of_descriptors(int error) {
  if (error == EMFILE || error == ENFILE) return true;
  constexpr rlim_t kNeeded = 64;
  rlimit limit{};
  return error != EPERM && error != EACCES && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kNeeded;
}

bool has_verifier_log(const std::string& log) { return log.find("BEGIN PROG LOAD LOG") != std::string::npos; }

}  // namespace

LibbpfLog::LibbpfLog() : outer_(current_log) {
  static const libbpf_print_fn_t kept = libbpf_set_print(keep_message);
  (void)kept;
  current_log = this;
}

LibbpfLog::~LibbpfLog() { current_log = outer_; }

SystemError explain_load_error(int error, const std::string& log, const std::string& btf) {
  SystemError found{{}, error, RefusalKind::kOther, log};
  if (for_want_of_descriptors(error)) return too_many_open_files(error, log);
  // A verifier that has spoken has been reached: no right is missing, whatever the errno (EACCES and EPERM are among
  // those it gives).
  if (!has_verifier_log(log) && find_cause(btf, found)) return found;
  const SystemFacts facts = read_system_facts(btf);
  if (facts.lockdown == "confidentiality" && find_cause(btf, found)) return found;
  return load_error_without_cause(error, log, facts.release, facts.machine);
}

SystemError load_error_without_cause(int error, const std::string& log, const std::string& release,
                                     const std::string& machine) {
  const std::string program = failed_program(log);
  if (has_verifier_log(log)) {
    const bool too_large = log.find("BPF program is too large") != std::string::npos;
    return {fmt::format("the kernel ({} {}) rejects the BPF program {}: {}{}. Way out: another kernel release; please "
                        "report this one with the output of windlass doctor -v, which holds the verifier's log",
                        release, machine, program.empty() ? "?" : program, std::strerror(error),
                        too_large ? " (more than the 1,000,000 instructions that the verifier looks at)" : ""),
            error, RefusalKind::kRejected, log};
  }
  if (error == ENOMEM || log.find("RLIMIT_MEMLOCK") != std::string::npos)
    return {
        "no memory for the BPF maps. Way out: free some, raise the memory limit of the cgroup, or ulimit -l unlimited "
        "on kernels before 5.11",
        error, RefusalKind::kLimit, log};
  if (error == EMFILE || error == ENFILE) return too_many_open_files(error, log);
  if (error == E2BIG || error == ENOSPC)
    return {fmt::format("a BPF map or program is larger than the kernel ({} {}) allows: {}. Way out: another kernel "
                        "release; please report this one with the output of windlass doctor -v",
                        release, machine, std::strerror(error)),
            error, RefusalKind::kLimit, log};
  return {
      fmt::format("the BPF programs cannot be loaded on this kernel ({} {}): {}. Way out: please report it with the "
                  "output of windlass doctor -v",
                  release, machine, std::strerror(error)),
      error, kind_of_errno(error), log};
}

SystemError explain_tracepoint_error(int error, const std::string& program, const std::string& btf) {
  if (for_want_of_descriptors(error)) return too_many_open_files(error);
  SystemError found{{}, error};
  if (find_cause(btf, found)) return found;
  found.text = fmt::format(
      "processes cannot be followed: the BPF program {} cannot be attached: {}. Way out: please "
      "report it with the output of windlass doctor -v",
      program, std::strerror(error));
  found.kind = kind_of_errno(error);
  return found;
}

SystemError explain_perf_error(int error, unsigned frequency) {
  if (error == EACCES || error == EPERM) {
    SystemError found{{}, error, RefusalKind::kPrivilege};
    if (find_cause({}, found)) return found;
    return {
        "the kernel refuses perf events. Way out: run as root or with CAP_PERFMON, or sysctl "
        "kernel.perf_event_paranoid=0",
        error, RefusalKind::kPrivilege};
  }
  if (error == EINVAL) {
    const std::optional<long> most = read_system_facts().max_sample_rate;
    return {fmt::format("{} samples a second is more than the kernel allows ({}). Way out: -F {}, or sysctl "
                        "kernel.perf_event_max_sample_rate={}",
                        frequency, most ? std::to_string(*most) : "?",
                        most ? std::to_string(*most) : "a smaller number", frequency),
            error, RefusalKind::kLimit};
  }
  if (error == EMFILE || error == ENFILE) return too_many_open_files(error);
  if (error == ENOENT || error == ENOSYS)
    return {"the kernel has no perf events. Way out: boot one with CONFIG_PERF_EVENTS=y", error, RefusalKind::kMissing};
  return {
      fmt::format("a perf event cannot be opened: {}. Way out: please report it with the output of windlass doctor -v",
                  std::strerror(error)),
      error, kind_of_errno(error)};
}

namespace {

const char* why_not_there(std::string_view event) {
  static constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"uprobe:", "the file, or the function in its symbols, is not there. Way out: windlass dump FILE, nm FILE"},
      {"uretprobe:", "the file, or the function in its symbols, is not there. Way out: windlass dump FILE, nm FILE"},
      {"usdt:", "the file, or the static probe in its notes, is not there. Way out: readelf -n FILE"},
      {"kprobe:", "the kernel has no such function that is not inlined. Way out: grep NAME /proc/kallsyms"},
      {"kretprobe:", "the kernel has no such function that is not inlined. Way out: grep NAME /proc/kallsyms"},
      {"",
       "the kernel has no such tracepoint, or tracefs is not mounted. Way out: ls /sys/kernel/tracing/events, mount "
       "-t tracefs tracefs /sys/kernel/tracing"}};
  if (event.find(':') == std::string_view::npos)
    return "this machine has no such counter (a virtual machine often has none of the processor's). Way out: -e cpu";
  return std::ranges::find_if(kKinds, [&](const auto& kind) { return event.starts_with(kind.first); })->second;
}

}  // namespace

SystemError explain_event_error(const std::string& event, int error) {
  if (error == EACCES || error == EPERM || error == EMFILE || error == ENFILE) return explain_perf_error(error, 0);
  const bool in_kernel = event.starts_with("kprobe:") || event.starts_with("kretprobe:");
  std::string why;
  if (in_kernel && error == ENODEV)
    why = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS). Way out: -e CATEGORY:TRACEPOINT";
  else if (in_kernel && (error == EINVAL || error == EILSEQ))
    why =
        "the kernel allows no probe there. Way out: another function or offset; "
        "/sys/kernel/debug/kprobes/blacklist lists the functions without";
  else if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV || error == ESRCH)
    why = why_not_there(event);
  else
    why = fmt::format("{}. Way out: please report it with the output of windlass doctor -v", std::strerror(error));
  return {fmt::format("the event {} cannot be recorded: {}", event, why), error, RefusalKind::kMissing};
}

SystemError explain_allocation_error(int error) {
  if (error == EACCES || error == EPERM || error == EMFILE || error == ENFILE) return explain_perf_error(error, 0);
  return {fmt::format("the process's allocator cannot be probed: {}. Way out: record --alloc -- COMMAND",
                      std::strerror(error)),
          error, RefusalKind::kMissing};
}

SystemError explain_own_perf_error(int error, unsigned frequency) {
  if (error != EACCES && error != EPERM) return explain_perf_error(error, frequency);
  const SystemFacts facts = read_system_facts();
  const std::string paranoid = facts.perf_event_paranoid ? std::to_string(*facts.perf_event_paranoid) : "?";
  if (facts.perf_event_paranoid && *facts.perf_event_paranoid <= 2)
    return {
        facts.status.seccomp == 2
            ? "perf events are refused by the seccomp filter that this process runs under. Way out: allow "
              "perf_event_open in the container's seccomp profile"
            : "the kernel refuses perf events of this process: it is not this user's, or protects itself. Way out: " +
                  way_to(facts, Capability::kSysPtrace),
        error, RefusalKind::kPrivilege};
  return {
      fmt::format("users may not sample even their own processes: kernel.perf_event_paranoid is {}. Way out: sysctl "
                  "kernel.perf_event_paranoid=2",
                  paranoid),
      error, RefusalKind::kPrivilege};
}

// perf_event_open(2): perf_event_paranoid 2 closes the kernel to users.
SystemError explain_own_switch_error(const std::string& event, int error) {
  const SystemFacts facts = read_system_facts();
  if (facts.perf_event_paranoid && *facts.perf_event_paranoid <= 1) return explain_own_perf_error(error, 0);
  return {
      fmt::format("the event {} takes place in the kernel, which kernel.perf_event_paranoid={} closes to users. Way "
                  "out: CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1",
                  event, facts.perf_event_paranoid ? std::to_string(*facts.perf_event_paranoid) : "?"),
      error, RefusalKind::kPrivilege};
}

// getrlimit(2): RLIMIT_AS bounds what is reserved, too, not only what is used.
SystemError explain_memory_error(const Error& error) {
  const int code = static_cast<int>(error.detail);
  rlimit limit{};
  if (code == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return {fmt::format("the address space of this process is limited to {} MiB (ulimit -v), and the tables reserve {} "
                        "MiB of it. Way out: ulimit -v unlimited, or prlimit --as=unlimited -- windlass record ...",
                        limit.rlim_cur >> 20, (std::uint64_t{WL_MAX_CHUNKS} * WL_CHUNK_SIZE) >> 20),
            code, RefusalKind::kLimit};
  if (code == ENOMEM)
    return {error.text() + ". Way out: free memory, or raise the memory limit of the cgroup", code,
            RefusalKind::kLimit};
  if (code == EMFILE || code == ENFILE) return too_many_open_files(code);
  return system_error(error.text(), code);
}

// perf_event_open(2): without CAP_IPC_LOCK all rings of a user share perf_event_mlock_kb a CPU.
SystemError explain_perf_ring_error(int error) {
  if (error == EPERM) {
    const std::optional<long> most = read_system_facts().mlock_kb;
    return {
        fmt::format("the rings of this user's perf events are larger than the kernel allows ({} KiB a CPU, shared by "
                    "all that the user runs). Way out: end the other profiler, CAP_IPC_LOCK, or sysctl "
                    "kernel.perf_event_mlock_kb=4096",
                    most ? std::to_string(*most) : "?"),
        error, RefusalKind::kLimit};
  }
  return {
      fmt::format("the ring of process events cannot be mapped: {}. Way out: free memory, or record with fewer CPUs",
                  std::strerror(error)),
      error, kind_of_errno(error)};
}

}  // namespace windlass::profiler
