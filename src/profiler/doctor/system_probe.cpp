#include "profiler/doctor/system_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace windlass::profiler {

Probe ok(std::string name, std::string seen) { return {std::move(name), ProbeState::kOk, std::move(seen), {}}; }
Probe limited(std::string name, std::string seen, std::string way_out) {
  return {std::move(name), ProbeState::kLimited, std::move(seen), std::move(way_out)};
}
Probe refused(std::string name, RefusalKind kind, std::string seen, std::string way_out) {
  return {std::move(name), ProbeState::kRefused, std::move(seen), std::move(way_out), kind};
}

namespace {

constexpr KernelVersion kOldest{5, 15};

Probe release(const SystemFacts& facts) {
  const std::string seen = fmt::format("Linux {} on {}", facts.release, facts.machine);
  if (facts.version() < kOldest)
    return refused("kernel", RefusalKind::kMissing, seen + " is too old", "sampling needs Linux 5.15 or newer");
  return ok("kernel", seen);
}

Probe type_information(const SystemFacts& facts, const SystemTrials& trials) {
  if (trials.btf == 0) return ok("BTF", "the kernel's type information is in " + facts.btf_path);
  if (facts.btf_given)
    return refused(
        "BTF", RefusalKind::kMissing,
        fmt::format("{} holds no type information of a kernel ({})", facts.btf_path, std::strerror(trials.btf)),
        "give the BTF of the running kernel, or leave --btf away");
  if (!facts.mounts.sysfs)
    return refused("BTF", RefusalKind::kMissing, "/sys is not mounted, which holds the kernel's type information",
                   "mount -t sysfs sysfs /sys");
  return refused(
      "BTF", RefusalKind::kMissing,
      fmt::format("the kernel gives no type information ({}: {})", facts.btf_path, std::strerror(trials.btf)),
      "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' kernels are");
}

// kernel_lockdown(7). Since Linux 5.4; in confidentiality mode BPF programs may not read memory (LOCKDOWN_BPF_READ).
Probe lockdown(const SystemFacts& facts) {
  if (!facts.lockdown) return ok("lockdown", "not told (no /sys/kernel/security/lockdown)");
  if (*facts.lockdown == "confidentiality")
    return refused("lockdown", RefusalKind::kPrivilege,
                   "kernel lockdown is in confidentiality mode, where BPF programs may not read memory",
                   "boot with lockdown=integrity or lockdown=none (or Secure Boot off)");
  return ok("lockdown", *facts.lockdown);
}

Probe tracepoint(const TracepointTrial& trial, const SystemFacts& facts, const SystemTrials& trials) {
  const std::string name = "tracepoint " + trial.name;
  if (trial.error == 0) return ok(name, "attaches");
  if (!trial.known)
    return refused(name, RefusalKind::kMissing,
                   fmt::format("the kernel ({}) has no tracepoint {}", facts.release, trial.name),
                   "use a kernel that has it, and report this one with the output of windlass doctor -v");
  const bool privilege = trial.error == EPERM || trials.program != 0;
  return refused(name, privilege ? RefusalKind::kPrivilege : RefusalKind::kMissing,
                 fmt::format("a program for the tracepoint {} is refused: {}", trial.name, std::strerror(trial.error)),
                 privilege ? "see the refusals above"
                           : "the kernel needs CONFIG_FTRACE=y and CONFIG_BPF_EVENTS=y; report it with the output of "
                             "windlass doctor -v");
}

// No refusal: recording does without. A few samples can be wrong then (docs/reference/truncation-reasons.md, "Known
// wrong").
Probe hook(const SystemTrials& trials) {
  const std::string name = fmt::format("function {}", kHookedFunction);
  if (trials.hook == 0) return ok(name, "can be hooked: what is mapped over other code is known at once");
  return ok(name, fmt::format("cannot be hooked ({}): what is mapped over other code at a fixed address is known some "
                              "milliseconds later",
                              std::strerror(trials.hook)));
}

// Documentation/admin-guide/sysctl/net.rst. Without the compiler every instruction is interpreted.
Probe compiler(const SystemFacts& facts) {
  if (!facts.bpf_jit) return ok("BPF JIT", "not told (net.core.bpf_jit_enable)");
  if (*facts.bpf_jit != 0) return ok("BPF JIT", "on");
  return limited("BPF JIT", "off: each sample costs several times as much", "sysctl net.core.bpf_jit_enable=1");
}

// kallsyms_show_value() in kernel/ksyms_common.c: addresses are shown to CAP_SYSLOG unless kptr_restrict is 2, and to
// all where it is 0 and perf_event_paranoid at most 1.
Probe kernel_symbols(const SystemFacts& facts, const SystemTrials& trials) {
  const std::string name = "/proc/kallsyms";
  if (trials.kernel_addresses) return ok(name, "shows addresses: kernel functions have names");
  const bool forbidden = facts.kptr_restrict.value_or(0) > 1;
  return limited(
      name, "hides addresses: kernel functions stay without names",
      forbidden ? fmt::format("sysctl kernel.kptr_restrict=1 (it is {}), and root or CAP_SYSLOG", *facts.kptr_restrict)
                : "root or CAP_SYSLOG");
}

Probe sample_rate(const SystemFacts& facts) {
  const std::string name = "kernel.perf_event_max_sample_rate";
  if (!facts.max_sample_rate) return ok(name, "not told");
  const std::string seen = std::to_string(*facts.max_sample_rate);
  constexpr long kDefault = 997;
  if (*facts.max_sample_rate >= kDefault) return ok(name, seen);
  return limited(name, seen + ": less than the 997 samples a second that are the default",
                 fmt::format("record -F {}, or sysctl kernel.perf_event_max_sample_rate=100000", seen));
}

Probe kernel_frames(const SystemFacts& facts) {
  const std::string name = "kernel.perf_event_max_stack";
  constexpr long kAll = 127;
  if (!facts.max_stack) return ok(name, "not told");
  if (*facts.max_stack >= kAll) return ok(name, fmt::format("{} kernel frames", *facts.max_stack));
  return limited(name, fmt::format("kernel stacks end after {} frames", *facts.max_stack),
                 "sysctl kernel.perf_event_max_stack=127");
}

Probe cpus(const SystemFacts& facts) {
  if (!facts.online_cpus.empty()) return ok("CPUs", "online: " + facts.online_cpus);
  return limited(
      "CPUs", "/sys/devices/system/cpu/online cannot be read: CPUs are numbered from 0, which is wrong if some are off",
      "mount -t sysfs sysfs /sys");
}

}  // namespace

const char* probe_state_word(ProbeState state) {
  switch (state) {
    case ProbeState::kOk: return "ok";
    case ProbeState::kLimited: return "limited";
    case ProbeState::kRefused: break;
  }
  return "refused";
}

std::vector<Probe> probe_kernel(const SystemFacts& facts, const SystemTrials& trials) {
  std::vector<Probe> probes{release(facts), type_information(facts, trials), lockdown(facts)};
  for (const TracepointTrial& trial : trials.tracepoints) probes.push_back(tracepoint(trial, facts, trials));
  for (Probe probe : {hook(trials), compiler(facts), kernel_symbols(facts, trials), sample_rate(facts),
                      kernel_frames(facts), cpus(facts)})
    probes.push_back(std::move(probe));
  return probes;
}

std::vector<Probe> judge(const SystemFacts& facts, const SystemTrials& trials) {
  std::vector<Probe> probes{probe_pid_namespace(facts)};
  for (Probe& probe : probe_kernel(facts, trials)) probes.push_back(std::move(probe));
  // Without rights every trial fails: they come before the tracepoints', but after what no right mends.
  const auto at = std::find_if(probes.begin(), probes.end(),
                               [](const Probe& probe) { return probe.name.starts_with("tracepoint "); });
  std::vector<Probe> rights = probe_rights(facts, trials);
  probes.insert(at, std::make_move_iterator(rights.begin()), std::make_move_iterator(rights.end()));
  for (Probe& probe : probe_surroundings(facts)) probes.push_back(std::move(probe));
  return probes;
}

const Probe* first_refused(const std::vector<Probe>& probes) {
  const auto found = std::find_if(probes.begin(), probes.end(),
                                  [](const Probe& probe) { return probe.state == ProbeState::kRefused; });
  return found != probes.end() ? &*found : nullptr;
}

std::string refusal_text(const Probe& probe) {
  return probe.way_out.empty() ? probe.seen : fmt::format("{}. Way out: {}", probe.seen, probe.way_out);
}

Diagnosis conclude(const SystemFacts& facts, std::vector<Probe> probes, bool own_events) {
  Diagnosis diagnosis;
  diagnosis.probes = std::move(probes);
  if (const Probe* probe = first_refused(diagnosis.probes); probe != nullptr) {
    const bool by_events = own_events && probe->kind == RefusalKind::kPrivilege;
    diagnosis.verdict = by_events ? Verdict::kLimited : Verdict::kRefused;
    diagnosis.sentence = (by_events ? "record works for your own processes only, by perf events without the kernel: "
                                    : "record cannot work: ") +
                         probe->seen;
    return diagnosis;
  }
  const bool own = !facts.initial_user_namespace || !facts.has(Capability::kSysPtrace);
  if (own || facts.child_pid_namespace()) {
    diagnosis.verdict = Verdict::kLimited;
    diagnosis.sentence = fmt::format("record works for {} only", !facts.child_pid_namespace() ? "your own processes"
                                                                 : own ? "your own processes of this PID namespace"
                                                                       : "the processes of this PID namespace");
    return diagnosis;
  }
  diagnosis.sentence = "record -a works";
  return diagnosis;
}

}  // namespace windlass::profiler
