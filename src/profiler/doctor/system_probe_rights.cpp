// Probes of this process's rights: capabilities(7), bpf(2), perf_event_open(2).
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "profiler/doctor/system_probe.h"

namespace windlass::profiler {
namespace {

// Does the capability count in the initial user namespace? For BPF, perf events of others and other users' processes,
// the kernel asks there, and capabilities of another namespace count for nothing.
bool holds(const SystemFacts& facts, Capability capability) {
  return facts.initial_user_namespace && facts.has(capability);
}

bool can_load(const SystemFacts& facts) {
  const bool all = holds(facts, Capability::kSysAdmin);
  return all || (holds(facts, Capability::kBpf) && holds(facts, Capability::kPerfmon));
}

std::string missing_for_bpf(const SystemFacts& facts) {
  const bool bpf = !holds(facts, Capability::kBpf), perfmon = !holds(facts, Capability::kPerfmon);
  if (bpf && perfmon) return "CAP_BPF and CAP_PERFMON are missing";
  return bpf ? "CAP_BPF is missing" : "CAP_PERFMON is missing";
}

constexpr const char* kOutsideOfTheNamespace =
    "run it outside of the user namespace (a rootless container or unshare -U), as root";

std::string rights_way_out(const SystemFacts& facts) {
  if (!facts.initial_user_namespace) return kOutsideOfTheNamespace;
  if (facts.user == 0)
    return "start the container with these capabilities (docker run --cap-add=BPF --cap-add=PERFMON "
           "--cap-add=SYS_PTRACE, or --privileged), or a root shell that has not dropped them";
  return fmt::format("run it with sudo, or once: {}", setcap_command(facts));
}

// One of the two that the programs need. The text names both where both are missing: it is what record prints.
Probe needed(const SystemFacts& facts, Capability capability, const char* purpose) {
  const std::string name = capability_name(capability);
  if (holds(facts, capability)) return ok(name, fmt::format("held: {}", purpose));
  if (holds(facts, Capability::kSysAdmin)) return ok(name, fmt::format("CAP_SYS_ADMIN stands in: {}", purpose));
  const std::string seen =
      facts.initial_user_namespace
          ? fmt::format("{}: the kernel refuses BPF programs to this user", missing_for_bpf(facts))
          : fmt::format("{} counts for nothing in a user namespace that is not the initial one", name);
  return {name, ProbeState::kRefused, seen, rights_way_out(facts), RefusalKind::kPrivilege};
}

Probe other_processes(const SystemFacts& facts) {
  const std::string name = capability_name(Capability::kSysPtrace);
  if (holds(facts, Capability::kSysPtrace)) return ok(name, "held: mappings of other users' processes");
  return {name, ProbeState::kLimited, "missing: other users' processes may have no names and no whole stacks",
          way_to(facts, Capability::kSysPtrace)};
}

// /proc/PID/map_files, proc(5): CAP_SYS_ADMIN, since Linux 5.9 CAP_CHECKPOINT_RESTORE.
Probe mapped_files(const SystemFacts& facts) {
  const std::string name = capability_name(Capability::kSysAdmin);
  if (holds(facts, Capability::kSysAdmin)) return ok(name, "held: files that are mapped but deleted or hidden");
  if (holds(facts, Capability::kCheckpointRestore))
    return ok(name, "CAP_CHECKPOINT_RESTORE stands in: files that are mapped but deleted or hidden");
  return {name, ProbeState::kLimited,
          "missing, as is CAP_CHECKPOINT_RESTORE: code of files that are deleted or replaced stays without names",
          way_to(facts, Capability::kCheckpointRestore)};
}

// getrlimit(2). Until Linux 5.11 BPF maps counted against RLIMIT_MEMLOCK.
Probe limits(const SystemFacts& facts) {
  const std::string name = capability_name(Capability::kSysResource);
  if (holds(facts, Capability::kSysResource)) return ok(name, "held: limits can be raised");
  constexpr std::uint64_t kWanted = 65536;
  if (facts.version() < KernelVersion{5, 11} && facts.memlock != ~0ull)
    return {name, ProbeState::kLimited, "missing, and this kernel counts BPF maps as locked memory",
            "ulimit -l unlimited", RefusalKind::kLimit};
  if (facts.descriptors_hard < kWanted)
    return {name, ProbeState::kLimited,
            fmt::format("missing, and at most {} files can be open: with more binaries than half of that, some have no "
                        "names",
                        facts.descriptors_hard),
            "ulimit -Hn 65536 as root before"};
  return ok(name, "not held, and not needed here");
}

Probe unprivileged(const SystemFacts& facts) {
  const std::string name = "kernel.unprivileged_bpf_disabled";
  if (!facts.unprivileged_bpf_disabled) return ok(name, "not told");
  // Even at 0 users may only load socket filters: no sampler (Documentation/admin-guide/sysctl/kernel.rst).
  return ok(name, fmt::format("{}: BPF programs that sample need CAP_BPF and CAP_PERFMON at any value{}",
                              *facts.unprivileged_bpf_disabled, can_load(facts) ? ", which are held" : ""));
}

// bpf() itself, refused although the capabilities are there: who else can it be?
Probe refused_call(const std::string& name, int error, const SystemFacts& facts) {
  const std::string seen = fmt::format("{} is refused: {}", name, std::strerror(error));
  if (error == ENOSYS)
    return {name, ProbeState::kRefused, seen, "boot a kernel with CONFIG_BPF_SYSCALL=y", RefusalKind::kMissing};
  if (error == ENOMEM || error == ENOSPC || error == E2BIG)
    return {name, ProbeState::kRefused, seen + ": no memory", "free memory, or raise the memory limit of the cgroup",
            RefusalKind::kLimit};
  if (error == EPERM && facts.version() < KernelVersion{5, 11} && facts.memlock != ~0ull)
    return {name, ProbeState::kRefused, seen + ": locked memory is limited", "ulimit -l unlimited",
            RefusalKind::kLimit};
  if (!can_load(facts)) return {name, ProbeState::kRefused, seen, rights_way_out(facts), RefusalKind::kPrivilege};
  if (error == EPERM || error == EACCES) {
    const bool filter = facts.status.seccomp == 2;
    return {name, ProbeState::kRefused,
            seen + (filter ? " by the seccomp filter that this process runs under" : " although the rights are there"),
            filter ? "allow bpf and perf_event_open in the container's seccomp profile (docker run --security-opt "
                     "seccomp=unconfined)"
                   : "look for a security module's refusal in the kernel log (dmesg; ausearch -m avc)",
            RefusalKind::kPrivilege};
  }
  return {name, ProbeState::kRefused, seen,
          "the kernel needs BPF ring buffers and BPF for perf events "
          "(CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS)",
          kind_of_errno(error)};
}

Probe call(const std::string& name, int error, const char* seen, const SystemFacts& facts) {
  return error == 0 ? ok(name, seen) : refused_call(name, error, facts);
}

// perf_event_open(2). 3 is an extension of Debian and Ubuntu (security,perf: Allow further restriction of
// perf_event_open). It shuts out everybody. Debian's kernels then admit only CAP_SYS_ADMIN, whatever other capability
// is held.
bool shuts_out_all(const SystemFacts& facts) { return facts.perf_event_paranoid.value_or(0) > 2; }

Probe paranoid(const SystemFacts& facts, const SystemTrials& trials) {
  const std::string name = "kernel.perf_event_paranoid";
  if (!facts.perf_event_paranoid)
    return {name, ProbeState::kRefused, "the kernel has no perf events (no /proc/sys/kernel/perf_event_paranoid)",
            "boot a kernel with CONFIG_PERF_EVENTS=y, or mount /proc", RefusalKind::kMissing};
  const long value = *facts.perf_event_paranoid;
  if (trials.perf_all == 0) return ok(name, fmt::format("{}, which does not bind this user", value));
  const char* meaning = value > 2    ? "users may not open any perf event"
                        : value == 2 ? "users may sample their own processes, without the kernel"
                        : value == 1 ? "users may sample their own processes"
                                     : "perf events of the whole machine are open to all";
  if (value <= 0) return ok(name, fmt::format("{}: {}", value, meaning));
  return {name, ProbeState::kLimited, fmt::format("{}: {}", value, meaning),
          value > 2 ? "sysctl kernel.perf_event_paranoid=2, or CAP_SYS_ADMIN"
                    : "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0",
          RefusalKind::kPrivilege};
}

std::string sampling_way_out(const SystemFacts& facts) {
  if (!holds(facts, Capability::kPerfmon))
    return "run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0";
  if (shuts_out_all(facts))
    return fmt::format("sysctl kernel.perf_event_paranoid=2, or CAP_SYS_ADMIN, which this kernel wants at {}",
                       *facts.perf_event_paranoid);
  if (facts.status.seccomp == 2)
    return "allow perf_event_open in the container's seccomp profile (docker run --security-opt seccomp=unconfined)";
  return "look for a security module's refusal in the kernel log (dmesg; ausearch -m avc)";
}

Probe sampling(const SystemFacts& facts, const SystemTrials& trials) {
  const std::string name = "perf_event_open, all processes";
  const int error = trials.perf_all;
  if (error == 0) return ok(name, "the software clock of every CPU can be sampled");
  const std::string seen = fmt::format("the kernel refuses perf events of the whole machine: {}", std::strerror(error));
  if (error == EACCES || error == EPERM)
    return {name, ProbeState::kRefused, seen, sampling_way_out(facts), RefusalKind::kPrivilege};
  if (error == EMFILE) return {name, ProbeState::kRefused, seen, "ulimit -n 4096", RefusalKind::kLimit};
  return {name, ProbeState::kRefused, seen, "boot a kernel with CONFIG_PERF_EVENTS=y", kind_of_errno(error)};
}

Probe own_sampling(const SystemTrials& trials) {
  const std::string name = "perf_event_open, own process";
  if (trials.perf_own == 0) return ok(name, "the software clock of an own process can be sampled");
  return {name, ProbeState::kLimited, fmt::format("refused: {}", std::strerror(trials.perf_own)),
          "sysctl kernel.perf_event_paranoid=2", kind_of_errno(trials.perf_own)};
}

}  // namespace

std::string way_to(const SystemFacts& facts, Capability capability) {
  if (!facts.initial_user_namespace) return kOutsideOfTheNamespace;
  if (facts.user == 0) {
    const std::string_view name = capability_name(capability);
    return fmt::format("start the container with --cap-add={}, or a root shell that has not dropped {}",
                       name.substr(name.find('_') + 1), name);
  }
  return "sudo, or once: " + setcap_command(facts);
}

// ptrace(2), "Ptrace access mode checking"; proc(5), hidepid.
SystemError refuse_target(const SystemFacts& facts, std::uint32_t pid, bool hidden, int error) {
  const std::string what = hidden ? fmt::format("process {} is there, but /proc hides it (hidepid)", pid)
                                  : fmt::format("what process {} has mapped may not be read", pid);
  std::string why = "it is another user's, or protects itself";
  std::string way_out = way_to(facts, Capability::kSysPtrace);
  if (!facts.initial_user_namespace) {
    why =
        "it is outside of this user namespace, where CAP_SYS_PTRACE of the namespace counts for nothing, or protects "
        "itself";
  } else if (facts.has(Capability::kSysPtrace)) {
    why = "CAP_SYS_PTRACE is held, so a security module protects it";
    way_out = "look for its refusal in the kernel log (dmesg; ausearch -m avc)";
  } else if (facts.user == 0) {
    why = "CAP_SYS_PTRACE is missing";
  }
  return {fmt::format("{}: {}. Way out: {}", what, why, way_out), error, RefusalKind::kPrivilege};
}

std::string setcap_command(const SystemFacts& facts) {
  return fmt::format("sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore,cap_syslog+ep {}",
                     facts.command);
}

std::vector<Probe> probe_rights(const SystemFacts& facts, const SystemTrials& trials) {
  return {needed(facts, Capability::kBpf, "BPF programs and maps"),
          needed(facts, Capability::kPerfmon, "BPF programs that read memory, perf events of the whole machine"),
          other_processes(facts),
          mapped_files(facts),
          limits(facts),
          unprivileged(facts),
          call("bpf(BPF_MAP_CREATE)", trials.map, "a hash can be created", facts),
          call("BPF ring buffer", trials.ring_buffer, "one can be created", facts),
          call("bpf(BPF_PROG_LOAD)", trials.program, "a program for perf events can be loaded", facts),
          paranoid(facts, trials),
          own_sampling(trials),
          sampling(facts, trials)};
}

}  // namespace windlass::profiler
