// The probes' verdicts without the system: the facts are made up here.
#include "profiler/doctor/system_probe.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "profiler/doctor/kernel_errors.h"
#include "profiler/doctor/program_stats.h"

namespace windlass::profiler {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t bit(Capability capability) { return std::uint64_t{1} << static_cast<unsigned>(capability); }
constexpr std::uint64_t kAllCapabilities = (std::uint64_t{1} << 41) - 1;

// Root on a plain Debian.
SystemFacts good_facts() {
  SystemFacts facts;
  facts.release = "6.1.0-32-amd64";
  facts.machine = "x86_64";
  facts.status.effective = kAllCapabilities;
  facts.mounts = {.proc = true, .sysfs = true, .cgroup1 = false, .cgroup2 = true, .hidepid = {}};
  facts.lockdown = "none";
  facts.perf_event_paranoid = 3;
  facts.unprivileged_bpf_disabled = 2;
  facts.kptr_restrict = 0;
  facts.max_sample_rate = 100000;
  facts.max_stack = 127;
  facts.bpf_jit = 1;
  facts.online_cpus = "0-3";
  return facts;
}

SystemTrials good_trials() {
  SystemTrials trials;
  trials.kernel_addresses = true;
  for (const char* name : {"sched_process_fork", "sched_process_exec"}) trials.tracepoints.push_back({name, true, 0});
  return trials;
}

// As the kernel answers somebody without capabilities.
SystemTrials unprivileged_trials() {
  SystemTrials trials = good_trials();
  trials.map = trials.ring_buffer = trials.program = EPERM;
  trials.perf_all = trials.perf_own = EACCES;
  for (auto& tracepoint : trials.tracepoints) tracepoint.error = EPERM;
  return trials;
}

Probe find(const std::vector<Probe>& probes, const std::string& name) {
  for (const Probe& probe : probes)
    if (probe.name == name) return probe;
  ADD_FAILURE() << "no probe " << name;
  return {};
}

Probe cause(const SystemFacts& facts, const SystemTrials& trials) {
  const auto probes = judge(facts, trials);
  const Probe* probe = first_refused(probes);
  if (probe != nullptr) return *probe;
  ADD_FAILURE() << "nothing is refused";
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// ---- parsers --------------------------------------------------------------------------------------------------------

TEST(SystemFacts, Release) {
  EXPECT_EQ(parse_release("6.18.44-fc-v669"), (KernelVersion{6, 18}));
  EXPECT_EQ(parse_release("5.4.0"), (KernelVersion{5, 4}));
  EXPECT_EQ(parse_release("rubbish"), (KernelVersion{0, 0}));
  EXPECT_LT(parse_release("5.15.1"), parse_release("5.17"));
  EXPECT_LT(parse_release("5.17.1"), parse_release("6.1"));
}

TEST(SystemFacts, Lockdown) {
  EXPECT_EQ(parse_lockdown("none [integrity] confidentiality\n"), "integrity");
  EXPECT_EQ(parse_lockdown("[none] integrity confidentiality\n"), "none");
  EXPECT_EQ(parse_lockdown(""), "");
  EXPECT_EQ(parse_lockdown("]["), "");
}

TEST(SystemFacts, Status) {
  const ProcessStatus status = parse_status(
      "Name:\tx\nNSpid:\t4711\t12\t1\nCapInh:\t0000000000000000\nCapEff:\t000001fffeffffff\nSeccomp:\t2\n");
  EXPECT_EQ(status.effective, 0x1fffeffffffu);
  EXPECT_EQ(status.seccomp, 2);
  EXPECT_EQ(status.namespaces, 3u);
  EXPECT_EQ(status.own_pid, 1u);
  EXPECT_EQ(parse_status("").effective, 0u);
}

TEST(SystemFacts, Mounts) {
  MountFacts mounts = parse_mountinfo(
      "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw,gid=4,hidepid=invisible\n"
      "23 27 0:22 / /sys rw - sysfs sysfs rw\n"
      "24 23 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "25 23 0:24 / /sys/fs/cgroup/unified rw master:1 shared:2 - cgroup2 cgroup2 rw\n"
      "torn line\n");
  EXPECT_TRUE(mounts.proc && mounts.sysfs && mounts.cgroup1 && mounts.cgroup2);
  EXPECT_EQ(mounts.hidepid, "invisible");
  mounts = parse_mountinfo(
      "22 27 0:21 / /proc rw - proc proc rw,hidepid=2\n29 22 0:3 / /proc rw - proc proc rw,hidepid=0\n");
  EXPECT_EQ(mounts.hidepid, "");
  EXPECT_FALSE(mounts.sysfs);
}

TEST(SystemFacts, Namespaces) {
  EXPECT_EQ(parse_namespace("pid:[4026531836]"), kInitialPidNamespace);
  EXPECT_EQ(parse_namespace(""), 0u);
  EXPECT_TRUE(is_initial_uid_map("         0          0 4294967295\n"));
  EXPECT_FALSE(is_initial_uid_map("         0       1000          1\n"));
  EXPECT_FALSE(is_initial_uid_map(""));
}

TEST(SystemFacts, AreReadBelowTheRootGiven) {
  const fs::path root = fs::path(testing::TempDir()) / "windlass-system-facts";
  const auto write = [&](const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  write("proc/self/status", "CapEff:\t0000000000000000\nNSpid:\t7\n");
  write("proc/sys/kernel/perf_event_paranoid", "4\n");
  write("proc/sys/kernel/yama/ptrace_scope", "1\n");
  write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
  write("sys/devices/system/cpu/online", "0-1,4\n");
  write("run/.containerenv", "");
  fs::create_directories(root / "proc/self/ns");
  fs::remove(root / "proc/self/ns/pid");
  fs::create_symlink("pid:[4026532200]", root / "proc/self/ns/pid");
  const SystemFacts facts = read_system_facts({}, root.string());
  EXPECT_EQ(facts.status.effective, 0u);
  EXPECT_EQ(facts.perf_event_paranoid, 4);
  EXPECT_EQ(facts.ptrace_scope, 1);
  EXPECT_EQ(facts.kptr_restrict, std::nullopt);
  EXPECT_EQ(facts.lockdown, "confidentiality");
  EXPECT_EQ(facts.online_cpus, "0-1,4");
  EXPECT_EQ(facts.container, "/run/.containerenv");
  EXPECT_TRUE(facts.child_pid_namespace());
  EXPECT_FALSE(facts.initial_user_namespace);
  fs::remove_all(root);
}

TEST(SystemFacts, HaveTheLimitsOfThisProcess) {
  rlimit locked{}, files{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &locked), 0);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit lower{std::min<rlim_t>(locked.rlim_cur, 4096), locked.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &lower), 0);
  const SystemFacts facts = read_system_facts();
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &locked), 0);
  EXPECT_EQ(facts.memlock, lower.rlim_cur);
  EXPECT_EQ(facts.descriptors, files.rlim_cur);
  EXPECT_EQ(facts.descriptors_hard, files.rlim_max);
}

// ---- judgement ------------------------------------------------------------------------------------------------------

TEST(SystemProbe, NothingIsWrongWithAPlainMachine) {
  const Diagnosis diagnosis = conclude(good_facts(), judge(good_facts(), good_trials()), true);
  for (const Probe& probe : diagnosis.probes) EXPECT_EQ(probe.state, ProbeState::kOk) << probe.name << probe.seen;
  EXPECT_EQ(diagnosis.verdict, Verdict::kWorks);
  EXPECT_EQ(diagnosis.sentence, "record -a works");
  for (const char* name : {"kernel", "RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "container"})
    EXPECT_EQ(find(diagnosis.probes, name).state, ProbeState::kOk) << name;
}

TEST(SystemProbe, ATracepointIsRefusedForPrivilegeOrIsMissing) {
  const auto refusal = [](const SystemTrials& trials) {
    return find(judge(good_facts(), trials), "tracepoint sched_process_exec").kind;
  };
  SystemTrials trials = good_trials();
  trials.tracepoints[1].error = EPERM;
  EXPECT_EQ(refusal(trials), RefusalKind::kPrivilege);
  trials.tracepoints[1].error = ENOENT;
  EXPECT_EQ(refusal(trials), RefusalKind::kMissing) << "programs load";
  trials.program = EPERM;
  EXPECT_EQ(refusal(trials), RefusalKind::kPrivilege) << "no program loads";
}

TEST(SystemProbe, EveryRefusalAndLimitHasAWayOut) {
  std::vector<std::pair<SystemFacts, SystemTrials>> systems;
  SystemFacts bare;  // nothing can be read
  bare.release = "4.19.0";
  systems.emplace_back(bare, unprivileged_trials());
  for (const int error : {EPERM, EACCES, ENOSYS, EINVAL, E2BIG, ENOSPC, ENOMEM, EMFILE, ENODEV}) {
    SystemTrials trials = good_trials();
    trials.btf = trials.map = trials.ring_buffer = trials.program = trials.perf_all = trials.perf_own = error;
    trials.tracepoints[0] = {"sched_process_fork", false, error};
    trials.tracepoints[1].error = error;
    systems.emplace_back(good_facts(), trials);
    SystemFacts facts = good_facts();
    facts.status.effective = 0;
    facts.user = 1000;
    facts.mounts.hidepid = "2";
    facts.kptr_restrict = 2;
    facts.bpf_jit = 0;
    facts.max_stack = 10;
    facts.max_sample_rate = 100;
    systems.emplace_back(facts, trials);
  }
  for (const auto& [facts, trials] : systems) {
    for (const Probe& probe : judge(facts, trials)) {
      EXPECT_FALSE(probe.seen.empty()) << probe.name;
      EXPECT_EQ(probe.way_out.empty(), probe.state == ProbeState::kOk) << probe.name << ": " << probe.seen;
    }
  }
}

// sudo gives root no more rights. So a refusal names the missing right, and who can give it.
TEST(SystemProbe, WhyAProcessMayNotBeRecorded) {
  const auto text = [](unsigned user, bool holds, bool initial, bool hidden = false) {
    SystemFacts facts = good_facts();
    facts.user = user;
    facts.status.effective = holds ? kAllCapabilities : 0;
    facts.initial_user_namespace = initial;
    const SystemError error = refuse_target(facts, 42, hidden, EACCES);
    EXPECT_EQ(error.kind, RefusalKind::kPrivilege);
    EXPECT_EQ(error.code, EACCES);
    EXPECT_NE(error.text.find("process 42"), std::string::npos);
    return error.text;
  };
  const auto contains = [](const std::string& all, const char* part) { return all.find(part) != std::string::npos; };
  const std::string user = text(1000, false, true);
  EXPECT_TRUE(contains(user, "another user's") && contains(user, "Way out: sudo")) << user;
  const std::string container = text(0, false, true);
  EXPECT_TRUE(contains(container, "CAP_SYS_PTRACE is missing") && contains(container, "--cap-add=SYS_PTRACE"));
  EXPECT_FALSE(contains(container, "sudo")) << container;
  const std::string inside = text(0, true, false);
  EXPECT_TRUE(contains(inside, "outside of the user namespace")) << inside;
  EXPECT_FALSE(contains(inside, "sudo")) << inside;
  const std::string guarded = text(0, true, true);
  EXPECT_TRUE(contains(guarded, "security module") && contains(guarded, "kernel log")) << guarded;
  EXPECT_TRUE(contains(text(1000, false, true, true), "hidepid"));
}

TEST(SystemProbe, NamesExactlyTheCapabilityThatIsMissing) {
  const std::uint64_t base = kAllCapabilities & ~bit(Capability::kSysAdmin);
  struct Case {
    std::uint64_t without;
    std::string expected, unexpected;
  };
  for (const Case& one :
       {Case{bit(Capability::kBpf), "CAP_BPF is missing", "PERFMON is"},
        Case{bit(Capability::kPerfmon), "CAP_PERFMON is missing", "BPF is"},
        Case{bit(Capability::kBpf) | bit(Capability::kPerfmon), "CAP_BPF and CAP_PERFMON are missing", "is missing"}}) {
    SystemFacts facts = good_facts();
    facts.user = 1000;
    facts.command = "/opt/windlass";
    facts.status.effective = base & ~one.without;
    const Probe probe = cause(facts, unprivileged_trials());
    EXPECT_EQ(probe.kind, RefusalKind::kPrivilege);
    EXPECT_TRUE(contains(probe.seen, one.expected)) << probe.seen;
    EXPECT_FALSE(contains(probe.seen, one.unexpected)) << probe.seen;
    EXPECT_TRUE(contains(
        probe.way_out, "setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore,cap_syslog+ep /opt/windlass"))
        << probe.way_out;
  }
}

// Seen on Debian's 6.1: at 3 CAP_PERFMON does not let in.
TEST(SystemProbe, ParanoidThreeWantsCapSysAdmin) {
  SystemFacts facts = good_facts();
  facts.status.effective &= ~bit(Capability::kSysAdmin);
  SystemTrials trials = good_trials();
  trials.perf_all = trials.perf_own = EACCES;
  EXPECT_TRUE(contains(cause(facts, trials).way_out, "sysctl kernel.perf_event_paranoid=2, or CAP_SYS_ADMIN"));
  facts.perf_event_paranoid = 2;
  facts.status.seccomp = 2;
  EXPECT_TRUE(contains(cause(facts, trials).way_out, "seccomp"));
  facts.status.effective = 0;
  trials = unprivileged_trials();
  EXPECT_TRUE(contains(find(judge(facts, trials), "perf_event_open, all processes").way_out, "CAP_PERFMON"));
}

TEST(SystemProbe, KernelSymbols) {
  SystemFacts facts = good_facts();
  SystemTrials trials = good_trials();
  trials.kernel_addresses = false;
  EXPECT_EQ(find(judge(facts, trials), "/proc/kallsyms").way_out, "root or CAP_SYSLOG");
  facts.kptr_restrict = 2;
  EXPECT_TRUE(contains(find(judge(facts, trials), "/proc/kallsyms").way_out, "sysctl kernel.kptr_restrict=1"));
  EXPECT_EQ(conclude(facts, judge(facts, trials), true).verdict, Verdict::kWorks) << "names are not all";
}

TEST(SystemProbe, CapSysAdminStandsInForTheSmallOnes) {
  SystemFacts facts = good_facts();
  facts.status.effective = bit(Capability::kSysAdmin) | bit(Capability::kSysPtrace);
  EXPECT_EQ(conclude(facts, judge(facts, good_trials()), true).verdict, Verdict::kWorks);
}

TEST(SystemProbe, RootOfAUserNamespaceIsNobody) {
  SystemFacts facts = good_facts();
  facts.initial_user_namespace = false;
  const Probe probe = cause(facts, unprivileged_trials());
  EXPECT_TRUE(contains(probe.seen, "user namespace")) << probe.seen;
  EXPECT_EQ(probe.kind, RefusalKind::kPrivilege);
}

TEST(SystemProbe, WhoRefusesThoughTheRightsAreThere) {
  SystemTrials trials = good_trials();
  trials.map = EPERM;
  SystemFacts facts = good_facts();
  EXPECT_TRUE(contains(cause(facts, trials).way_out, "security module"));
  facts.status.seccomp = 2;
  EXPECT_TRUE(contains(cause(facts, trials).way_out, "seccomp"));
  trials.map = ENOSYS;
  EXPECT_EQ(cause(facts, trials).kind, RefusalKind::kMissing);
  trials.map = ENOMEM;
  EXPECT_EQ(cause(facts, trials).kind, RefusalKind::kLimit);
  // Only old kernels count maps as locked memory; only there the limit explains EPERM.
  trials.map = EPERM;
  facts.memlock = 65536;
  EXPECT_EQ(cause(facts, trials).kind, RefusalKind::kPrivilege);
  facts.release = "5.10.0";
  EXPECT_EQ(find(judge(facts, trials), "bpf(BPF_MAP_CREATE)").way_out, "ulimit -l unlimited");
}

TEST(SystemProbe, CausesComeBeforeWhatFollows) {
  SystemFacts facts = good_facts();
  SystemTrials trials = unprivileged_trials();
  facts.lockdown = "confidentiality";
  EXPECT_EQ(cause(facts, trials).name, "lockdown");
  trials.btf = ENOENT;
  EXPECT_EQ(cause(facts, trials).name, "BTF");
  facts.release = "5.10.0-9";
  EXPECT_EQ(cause(facts, trials).name, "kernel");
  facts.mounts.proc = false;
  EXPECT_EQ(cause(facts, trials).name, "PID namespace");
}

TEST(SystemProbe, Lockdown) {
  SystemFacts facts = good_facts();
  facts.lockdown = "integrity";
  EXPECT_EQ(find(judge(facts, good_trials()), "lockdown").state, ProbeState::kOk);
  facts.lockdown = std::nullopt;  // no securityfs
  EXPECT_EQ(find(judge(facts, good_trials()), "lockdown").state, ProbeState::kOk);
}

TEST(SystemProbe, TracepointThatTheKernelHasNotGot) {
  SystemTrials trials = good_trials();
  trials.tracepoints.push_back({"vm_unmapped_area", false, ENOENT});
  const Probe probe = cause(good_facts(), trials);
  EXPECT_EQ(probe.kind, RefusalKind::kMissing);
  EXPECT_TRUE(contains(probe.seen, "vm_unmapped_area"));
}

TEST(SystemProbe, AFunctionThatCannotBeHookedIsNoRefusal) {
  SystemTrials trials = good_trials();
  EXPECT_TRUE(contains(find(judge(good_facts(), trials), "function perf_event_mmap").seen, "at once"));
  trials.hook = EPERM;
  const auto probes = judge(good_facts(), trials);
  EXPECT_TRUE(contains(find(probes, "function perf_event_mmap").seen, "Operation not permitted"));
  EXPECT_EQ(find(probes, "function perf_event_mmap").state, ProbeState::kOk);
  EXPECT_EQ(conclude(good_facts(), probes, true).verdict,
            conclude(good_facts(), judge(good_facts(), good_trials()), true).verdict);
}

TEST(SystemProbe, BtfFile) {
  SystemTrials trials = good_trials();
  trials.btf = EINVAL;
  SystemFacts facts = good_facts();
  EXPECT_TRUE(contains(cause(facts, trials).way_out, "CONFIG_DEBUG_INFO_BTF"));
  facts.mounts.sysfs = false;
  EXPECT_TRUE(contains(cause(facts, trials).way_out, "mount -t sysfs"));
  facts.btf_given = true;
  facts.btf_path = "/tmp/x";
  EXPECT_TRUE(contains(cause(facts, trials).seen, "/tmp/x"));
}

TEST(SystemProbe, VerdictsBetweenAllAndNothing) {
  SystemFacts facts = good_facts();
  facts.pid_namespace = 4026532200;
  Diagnosis diagnosis = conclude(facts, judge(facts, good_trials()), true);
  EXPECT_EQ(diagnosis.verdict, Verdict::kLimited);
  EXPECT_EQ(diagnosis.sentence, "record works for the processes of this PID namespace only");
  facts = good_facts();
  facts.status.effective &= ~bit(Capability::kSysPtrace);
  diagnosis = conclude(facts, judge(facts, good_trials()), true);
  EXPECT_EQ(diagnosis.verdict, Verdict::kLimited);
  EXPECT_EQ(diagnosis.sentence, "record works for your own processes only");
  EXPECT_EQ(recording_limits(facts).size(), 1u);
  EXPECT_TRUE(recording_limits(good_facts()).empty());
}

TEST(SystemProbe, OwnProcessesAreLeftWhereOnlyRightsAreMissing) {
  SystemFacts facts = good_facts();
  facts.status.effective = 0;
  SystemTrials trials = unprivileged_trials();
  EXPECT_EQ(conclude(facts, judge(facts, trials), false).verdict, Verdict::kRefused);
  const Diagnosis own = conclude(facts, judge(facts, trials), true);
  EXPECT_EQ(own.verdict, Verdict::kLimited);
  EXPECT_TRUE(own.sentence.starts_with("record works for your own processes only")) << own.sentence;
  trials.btf = ENOENT;  // no right would mend that
  EXPECT_EQ(conclude(facts, judge(facts, trials), true).verdict, Verdict::kRefused);
}

TEST(SystemProbe, ProcOfAnotherNamespaceIsRefusedBeforeAnythingElse) {
  SystemFacts facts = good_facts();
  EXPECT_FALSE(refuse_place(facts));
  facts.proc_of_other_namespace = true;
  ASSERT_TRUE(refuse_place(facts));
  EXPECT_EQ(refuse_place(facts)->kind, RefusalKind::kMissing);
}

// ---- what the verifier says -----------------------------------------------------------------------------------------

TEST(ProgramStats, AreReadFromTheVerifiersLastLines) {
  const auto stats = parse_verifier_stats(
      "verification time 1425213 usec\nstack depth 112+64+0\n"
      "processed 175819 insns (limit 1000000) max_states_per_insn 33 total_states 2049 peak_states 999 mark_read 77\n");
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->instructions, 175819u);
  EXPECT_EQ(stats->verify_us, 1425213u);
  EXPECT_EQ(stats->stack_depth, "112+64+0");
  EXPECT_FALSE(parse_verifier_stats(""));
  EXPECT_FALSE(parse_verifier_stats("processed many insns"));
  const auto bare = parse_verifier_stats("processed 12 insns\n");
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->instructions, 12u);
  EXPECT_EQ(bare->verify_us, 0u) << "not told";
  EXPECT_EQ(bare->stack_depth, "");
}

constexpr const char* kRejection =
    "libbpf: prog 'windlass_sample': BPF program load failed: Permission denied\n"
    "libbpf: prog 'windlass_sample': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\nR2 invalid mem access 'scalar'\n"
    "-- END PROG LOAD LOG --\nlibbpf: prog 'windlass_sample': failed to load: -13\n";

TEST(KernelErrors, ARejectionIsNoMatterOfPrivilege) {
  EXPECT_EQ(failed_program(kRejection), "windlass_sample");
  EXPECT_EQ(failed_program("libbpf: something else\n"), "");
  for (const int error : {EACCES, EPERM, EINVAL, E2BIG}) {
    const SystemError rejected = load_error_without_cause(error, kRejection, "6.1.0", "x86_64");
    EXPECT_EQ(rejected.kind, RefusalKind::kRejected);
    EXPECT_TRUE(contains(rejected.text, "windlass_sample")) << rejected.text;
    EXPECT_TRUE(contains(rejected.text, "6.1.0")) << rejected.text;
    EXPECT_FALSE(contains(rejected.text, "R2 invalid")) << "the log is for -v";
    EXPECT_TRUE(contains(rejected.log, "R2 invalid"));
  }
}

TEST(KernelErrors, LimitsAndTheRest) {
  EXPECT_EQ(load_error_without_cause(ENOMEM, "", "6.1.0", "x86_64").kind, RefusalKind::kLimit);
  EXPECT_EQ(load_error_without_cause(E2BIG, "", "6.1.0", "x86_64").kind, RefusalKind::kLimit);
  EXPECT_EQ(load_error_without_cause(ENOSPC, "", "6.1.0", "x86_64").kind, RefusalKind::kLimit);
  EXPECT_EQ(load_error_without_cause(EMFILE, "", "6.1.0", "x86_64").kind, RefusalKind::kLimit);
  EXPECT_EQ(load_error_without_cause(EACCES, "", "6.1.0", "x86_64").kind, RefusalKind::kOther);
  for (const int error : {ENOMEM, E2BIG, ENOSPC, EMFILE, EACCES, EINVAL})
    EXPECT_TRUE(contains(load_error_without_cause(error, "", "6.1.0", "x86_64").text, "Way out: ")) << error;
}

// Of one's own processes only the rights differ.
TEST(KernelErrors, OwnPerfEventsFailLikeAllOthers) {
  for (const int error : {ENOENT, EMFILE, EINVAL})
    EXPECT_EQ(explain_own_perf_error(error, 99).text, explain_perf_error(error, 99).text) << error;
  for (const int error : {EACCES, EPERM})
    EXPECT_EQ(explain_own_perf_error(error, 99).kind, RefusalKind::kPrivilege) << error;
}

TEST(KernelErrors, WordsAreStable) {
  EXPECT_STREQ(refusal_word(RefusalKind::kPrivilege), "privilege");
  EXPECT_STREQ(refusal_word(RefusalKind::kRejected), "rejected");
  EXPECT_STREQ(refusal_word(RefusalKind::kMissing), "missing");
  EXPECT_STREQ(refusal_word(RefusalKind::kLimit), "limit");
  EXPECT_STREQ(refusal_word(RefusalKind::kOther), "other");
}

}  // namespace
}  // namespace windlass::profiler
