// The probes about where this process runs: namespaces, mounts, limits.
#include <fmt/format.h>

#include <cerrno>

#include "profiler/doctor/system_probe.h"

namespace windlass::profiler {
namespace {

// proc(5)
Probe hidden_processes(const SystemFacts& facts) {
  const std::string name = "/proc hidepid";
  if (facts.mounts.hidepid.empty()) return ok(name, "everybody sees all processes");
  if (facts.initial_user_namespace && facts.has(Capability::kSysPtrace))
    return ok(name, fmt::format("{}, which CAP_SYS_PTRACE overrides", facts.mounts.hidepid));
  return limited(name, fmt::format("{}: other users' processes are hidden", facts.mounts.hidepid),
                 "mount -o remount,hidepid=0 /proc, or CAP_SYS_PTRACE");
}

// Documentation/admin-guide/LSM/Yama.rst. Reading another process's memory counts as attaching: the agent does so only
// for code that was generated at run time.
Probe yama(const SystemFacts& facts) {
  const std::string name = "kernel.yama.ptrace_scope";
  if (!facts.ptrace_scope) return ok(name, "no Yama");
  const bool capable = facts.initial_user_namespace && facts.has(Capability::kSysPtrace);
  const std::string seen = std::to_string(*facts.ptrace_scope);
  if (*facts.ptrace_scope == 0 || (capable && *facts.ptrace_scope < 3)) return ok(name, seen);
  return limited(name, seen + ": code generated at run time cannot be read from other processes, such stacks end early",
                 *facts.ptrace_scope < 3 ? "CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0"
                                         : "boot with another value: 3 cannot be taken back");
}

Probe cgroup(const SystemFacts& facts) {
  const char* seen = facts.mounts.cgroup1 && facts.mounts.cgroup2 ? "v1 and v2 (hybrid)"
                     : facts.mounts.cgroup2                       ? "v2"
                     : facts.mounts.cgroup1                       ? "v1"
                                                                  : "not mounted";
  return ok("cgroup", fmt::format("{}; record depends on none", seen));
}

Probe descriptors(const SystemFacts& facts) {
  if (facts.descriptors_hard == ~0ull) return ok("RLIMIT_NOFILE", "no limit");
  return ok("RLIMIT_NOFILE", fmt::format("{}, can be raised to {}", facts.descriptors, facts.descriptors_hard));
}

Probe locked_memory(const SystemFacts& facts) {
  if (facts.memlock == ~0ull) return ok("RLIMIT_MEMLOCK", "no limit");
  return ok("RLIMIT_MEMLOCK",
            fmt::format("{} KiB{}", facts.memlock / 1024,
                        facts.version() < KernelVersion{5, 11} ? "" : "; BPF maps do not count against it"));
}

Probe container(const SystemFacts& facts) {
  if (facts.container.empty()) return ok("container", "no sign of one");
  return ok("container", fmt::format("this looks like one ({})", facts.container));
}

}  // namespace

// pid_namespaces(7)
Probe probe_pid_namespace(const SystemFacts& facts) {
  const std::string name = "PID namespace";
  if (!facts.mounts.proc || facts.pid_namespace == 0)
    return {name, ProbeState::kRefused, "/proc is not mounted, which says what processes have mapped",
            "mount -t proc proc /proc", RefusalKind::kMissing};
  if (facts.proc_of_other_namespace)
    return {name, ProbeState::kRefused,
            "/proc is that of another PID namespace: its process ids mean other processes here",
            "mount -t proc proc /proc inside, as unshare --mount-proc does", RefusalKind::kMissing};
  if (!facts.child_pid_namespace()) return ok(name, "the initial one");
  return limited(name, fmt::format("pid:[{}], not the initial one: only its processes are seen", facts.pid_namespace),
                 "run it outside of the container, or start that with --pid=host");
}

std::vector<Probe> probe_surroundings(const SystemFacts& facts) {
  return {hidden_processes(facts), yama(facts),        cgroup(facts),
          locked_memory(facts),    descriptors(facts), container(facts)};
}

std::optional<SystemError> refuse_place(const SystemFacts& facts) {
  const Probe probe = probe_pid_namespace(facts);
  if (probe.state != ProbeState::kRefused) return std::nullopt;
  return SystemError{refusal_text(probe), ENOENT, probe.kind};
}

std::vector<std::string> recording_limits(const SystemFacts& facts) {
  std::vector<std::string> limits;
  for (const Probe& probe : {probe_pid_namespace(facts), hidden_processes(facts)})
    if (probe.state == ProbeState::kLimited) limits.push_back(fmt::format("{} {}", probe.name, probe.seen));
  if (!facts.initial_user_namespace || !facts.has(Capability::kSysPtrace))
    limits.emplace_back("without CAP_SYS_PTRACE other users' processes may have no names and no whole stacks");
  return limits;
}

}  // namespace windlass::profiler
