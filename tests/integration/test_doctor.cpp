// `windlass doctor`, and what `windlass record` says where the system refuses it: each case is a real refusal, made by
// taking rights, mounts or limits away.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

class Doctor : public testing::Test {
 protected:
  // A folder and a command that every user can reach, unlike the build's.
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / fmt::format("windlass-doctor-{}", getpid());
    fs::create_directories(folder_);
    fs::permissions(folder_, fs::perms::all);
    fs::copy_file(WINDLASS_COMMAND, folder_ / "windlass");
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string windlass() const { return (folder_ / "windlass").string(); }
  [[nodiscard]] std::string record(const std::string& rest) const {
    return fmt::format("{} record -o {}/p.pb.gz {} 2>&1", windlass(), folder_.string(), rest);
  }
  // Refused with status 3, in one sentence with a way out and the word for its kind; libbpf is not heard.
  static void expect_refusal(const CommandResult& result, const std::string& kind, const std::string& part) {
    EXPECT_EQ(result.status, 3) << result.output;
    EXPECT_TRUE(result.output.starts_with("windlass record: ")) << result.output;
    EXPECT_EQ(last_line(result.output) + "\n", result.output) << "one line";
    EXPECT_TRUE(result.output.ends_with(fmt::format(" [{}]\n", kind))) << result.output;
    EXPECT_TRUE(contains(result.output, part)) << result.output;
    EXPECT_TRUE(contains(result.output, "Way out: ")) << result.output;
    EXPECT_FALSE(contains(result.output, "libbpf:")) << result.output;
  }

  fs::path folder_;
};

const std::string kNobody = "setpriv --reuid=65534 --regid=65534 --clear-groups ";

const std::string kDropAll = kNobody + "--bounding-set -all ";

std::string nobody_with(const std::string& capabilities) {
  return fmt::format("{} --inh-caps=-all,{} --ambient-caps=-all,{} ", kNobody, capabilities, capabilities);
}

TEST_F(Doctor, ItsVerdictIsWhatRecordDoes) {
  const CommandResult doctor = run(windlass() + " doctor");
  const CommandResult recording = run(record("-- true"));  // not -a: it goes without rights, too
  const std::string verdict = last_line(doctor.output);
  switch (doctor.status) {
    case 0:
      EXPECT_EQ(verdict, "record -a works");
      EXPECT_EQ(recording.status, 0) << recording.output;
      break;
    case 1:
      EXPECT_TRUE(verdict.starts_with("record works for ")) << verdict;
      EXPECT_EQ(recording.status, 0) << recording.output;
      break;
    default:
      EXPECT_EQ(doctor.status, 3) << doctor.output;
      EXPECT_TRUE(verdict.starts_with("record cannot work: ")) << verdict;
      EXPECT_EQ(recording.status, 3) << recording.output;
  }
  for (const char* name : {"kernel:", "BTF:", "lockdown:", "CAP_BPF:", "CAP_PERFMON:", "CAP_SYS_PTRACE:",
                           "CAP_SYS_ADMIN:", "CAP_SYS_RESOURCE:", "perf_event_paranoid:", "unprivileged_bpf_disabled:",
                           "BPF JIT:", "RLIMIT_NOFILE:", "tracepoint sched_process_exec:", "PID namespace:", "cgroup:"})
    EXPECT_TRUE(contains(doctor.output, name)) << name;
}

TEST_F(Doctor, JsonIsOneObjectAProbeAndTheVerdictLast) {
  const CommandResult text = run(windlass() + " doctor");
  const CommandResult result = run(windlass() + " doctor --json");
  EXPECT_EQ(result.status, text.status);
  std::vector<json> objects;
  std::size_t begin = 0;
  for (std::size_t end; (end = result.output.find('\n', begin)) != std::string::npos; begin = end + 1)
    objects.push_back(json::parse(result.output.substr(begin, end - begin)));
  ASSERT_GT(objects.size(), 20u);
  EXPECT_EQ(objects.back().at("seen"), last_line(text.output));
  for (const json& object : objects) {
    if (!object.contains("probe")) continue;
    const std::string state = object.at("state");
    EXPECT_TRUE(state == "ok" || state == "limited" || state == "refused") << object;
    EXPECT_FALSE(object.at("seen").get<std::string>().empty()) << object;
    EXPECT_EQ(object.contains("kind"), state == "refused") << object;
  }
}

TEST_F(Doctor, VerboseShowsWhatTheVerifierSaysOfEachProgram) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const CommandResult result = run(windlass() + " doctor -v");
  for (const char* name : {"\nwindlass_fork ", "\nwindlass_exec ", "\nwindlass_exit ", "\nwindlass_sample"})
    EXPECT_TRUE(contains(result.output, name)) << name << result.output;
}

TEST_F(Doctor, RefusesTheWholeMachineToNobody) {
  if (geteuid() != 0) GTEST_SKIP() << "no privilege to become somebody else: run it as root";
  const CommandResult result = run(kDropAll + record("-a --duration 0.1"));
  expect_refusal(result, "privilege", "CAP_BPF and CAP_PERFMON are missing");
  EXPECT_TRUE(contains(result.output, "sudo setcap cap_bpf,cap_perfmon")) << result.output;
}

// What is left without rights: processes of one's own, by perf events, where the kernel allows these to users.
TEST_F(Doctor, NobodyRecordsItsOwnProcesses) {
  if (geteuid() != 0) GTEST_SKIP() << "no privilege to become somebody else: run it as root";
  const CommandResult doctor = run(kDropAll + windlass() + " doctor");
  const CommandResult own =
      run(kDropAll + record("-- sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 7'"));
  EXPECT_TRUE(contains(own.output, "CAP_BPF and CAP_PERFMON are missing")) << own.output;
  if (doctor.status == 3) {  // Debian's kernels: kernel.perf_event_paranoid is 3
    expect_refusal(own, "privilege", "Without BPF it fails, too: ");
    return;
  }
  EXPECT_EQ(doctor.status, 1) << doctor.output;
  EXPECT_TRUE(last_line(doctor.output).starts_with("record works for your own processes only, by perf events"))
      << doctor.output;
  EXPECT_EQ(own.status, 7) << own.output;
  EXPECT_TRUE(contains(own.output, " samples in ")) << own.output;
  EXPECT_TRUE(contains(own.output, "by perf events: user space only, up to ")) << own.output;
  expect_refusal(run(kDropAll + record("-p 1")), "privilege", "another user's");
}

TEST_F(Doctor, NamesTheOneCapabilityThatIsMissing) {
  if (geteuid() != 0) GTEST_SKIP() << "no privilege to become somebody else: run it as root";
  expect_refusal(run(nobody_with("+bpf") + record("-a --duration 0.1")), "privilege", "CAP_PERFMON is missing");
  expect_refusal(run(nobody_with("+perfmon") + record("-a --duration 0.1")), "privilege", "CAP_BPF is missing");
}

TEST_F(Doctor, TwoCapabilitiesRecordOwnProcesses) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string caps = nobody_with("+bpf,+perfmon");
  const CommandResult own = run(caps + record("-- sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'"));
  EXPECT_EQ(own.status, 0) << own.output;
  EXPECT_TRUE(contains(own.output, " samples in ")) << own.output;
  EXPECT_FALSE(contains(own.output, "no samples")) << own.output;
  // Newer kernels (6.18 does) let CAP_PERFMON read the mappings of others: may_access_mm() in kernel/fork.c.
  const CommandResult others = run(caps + record(fmt::format("-p {} --duration 0.2", getpid())));
  if (run(fmt::format("{} cat /proc/{}/maps 2>&1", caps, getpid())).status == 0)
    EXPECT_EQ(others.status, 1) << "it waits, and has no samples: " << others.output;
  else
    expect_refusal(others, "privilege", "another user's");
  const CommandResult doctor = run(caps + windlass() + " doctor");
  EXPECT_EQ(doctor.status, 1) << doctor.output;
  EXPECT_EQ(last_line(doctor.output), "record works for your own processes only");
  EXPECT_TRUE(contains(run(caps + record("-a --duration 0.2")).output, "without CAP_SYS_PTRACE"));
}

// The way out that refusals name, gone: file capabilities, which a command that is run does not inherit.
TEST_F(Doctor, SetcapIsAWayOut) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string capabilities = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore,cap_syslog+ep";
  EXPECT_TRUE(
      contains(run(kDropAll + windlass() + " doctor").output, "sudo setcap " + capabilities + " " + windlass()));
  if (run(fmt::format("setcap {} {} 2>&1", capabilities, windlass())).status != 0)
    GTEST_SKIP() << "no file capabilities here";
  const CommandResult doctor = run(kNobody + windlass() + " doctor");
  if (contains(doctor.output, "which this kernel wants at 3")) GTEST_SKIP() << last_line(doctor.output);
  EXPECT_EQ(last_line(doctor.output), "record -a works");
  const CommandResult recording = run(kNobody + record("-- grep CapEff /proc/self/status"));
  EXPECT_EQ(recording.status, 0) << recording.output;
  EXPECT_TRUE(contains(recording.output, "CapEff:\t0000000000000000")) << recording.output;
  EXPECT_FALSE(contains(recording.output, "BPF is refused")) << recording.output;
}

TEST_F(Doctor, AHiddenProcessIsNotSaidToBeGone) {
  if (geteuid() != 0 || run("unshare -m mount -t proc -o hidepid=2 proc /proc 2>&1").status != 0)
    GTEST_SKIP() << "needs root and mount namespaces";
  const auto hidden = [&](int pid) {
    return run(fmt::format("unshare -m sh -c \"mount -t proc -o hidepid=2 proc /proc && {}{}\"", kDropAll,
                           record(fmt::format("-p {}", pid))));
  };
  expect_refusal(hidden(getpid()), "privilege", "/proc hides it");
  EXPECT_TRUE(contains(hidden(4194303).output, "there is no process 4194303"));  // more than pid_max can be
}

TEST_F(Doctor, RootWithoutCapabilities) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  expect_refusal(run("setpriv --bounding-set -all --inh-caps=-all " + record("-a --duration 0.1")), "privilege",
                 "--cap-add");
  const CommandResult one =
      run("setpriv --bounding-set -all --inh-caps=-all " + record(fmt::format("-p {} --duration 0.1", getpid())));
  expect_refusal(one, "privilege", "CAP_SYS_PTRACE is missing");
  EXPECT_TRUE(contains(one.output, "--cap-add=SYS_PTRACE")) << one.output;
  EXPECT_FALSE(contains(one.output, "sudo")) << one.output;
}

TEST_F(Doctor, ALimitedAddressSpaceHasAWayOut) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const CommandResult limited = run("prlimit --as=4000000000 " + record("-- true"));
  expect_refusal(limited, "limit", "Way out: ulimit -v unlimited");
  EXPECT_TRUE(contains(limited.output, "3814 MiB")) << limited.output;
}

TEST_F(Doctor, ADurationIsSaidToBeNone) {
  for (const char* none : {"0", "-1", "x", "inf", "nan", "1e999"}) {
    const CommandResult result = run(record(fmt::format("--duration={} -- true", none)));
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_TRUE(contains(result.output, fmt::format("--duration: {} is no number of seconds above 0", none)))
        << result.output;
  }
}

TEST_F(Doctor, RootOfAUserNamespace) {
  if (run("unshare -Ur true 2>&1").status != 0) GTEST_SKIP() << "no user namespaces here";
  expect_refusal(run("unshare -Ur " + record("-a --duration 0.1")), "privilege", "user namespace");
}

TEST_F(Doctor, NoTypeInformation) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto without = [&](const std::string& rest) {
    return run(fmt::format("unshare -m sh -c \"mount -t tmpfs none /sys/kernel/btf && {}\"", record(rest)));
  };
  if (run("unshare -m true 2>&1").status != 0) GTEST_SKIP() << "no mount namespaces here";
  expect_refusal(without("-- true"), "missing", "CONFIG_DEBUG_INFO_BTF");
  expect_refusal(run(record("--btf /etc/passwd -- true")), "missing", "/etc/passwd holds no type information");
  EXPECT_EQ(run(record("--btf /sys/kernel/btf/vmlinux -- true")).status, 0);
}

// With types that are not the kernel's the programs read fields where there are none, which the verifier finds: EACCES
// that is no matter of rights.
TEST_F(Doctor, ARejectedProgramIsNoMissingRight) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string wrong = fmt::format("--btf {} -- true", WINDLASS_BPF_OBJECT);
  expect_refusal(run(record(wrong)), "rejected", "rejects the BPF program windlass_");
  const CommandResult verbose = run(record("-v " + wrong));
  EXPECT_EQ(verbose.status, 3);
  EXPECT_TRUE(contains(verbose.output, "BEGIN PROG LOAD LOG")) << verbose.output;
  EXPECT_TRUE(contains(verbose.output, "END PROG LOAD LOG")) << "in full";
}

TEST_F(Doctor, ProcOfAnotherPidNamespace) {
  if (run("unshare -pf true 2>&1").status != 0) GTEST_SKIP() << "no PID namespaces here";
  expect_refusal(run("unshare -pf " + record("-- true")), "missing", "mount -t proc");
}

TEST_F(Doctor, InAPidNamespace) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (run("unshare -pfm --mount-proc true 2>&1").status != 0) GTEST_SKIP() << "no PID namespaces here";
  const CommandResult result = run("unshare -pfm --mount-proc " + windlass() + " doctor");
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_EQ(last_line(result.output), "record works for the processes of this PID namespace only");
}

TEST_F(Doctor, TooFewDescriptors) {
  if (const auto reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  for (const int most : {10, 20, 24, 28, 32})
    expect_refusal(run(fmt::format("prlimit --nofile={} ", most) + record("-- true")), "limit", "too many open files");
  EXPECT_EQ(run("prlimit --nofile=20:20000 " + record("-- true")).status, 0) << "the hard limit counts";
}

}  // namespace
}  // namespace windlass::test
