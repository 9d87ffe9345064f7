// What `windlass record` must do on every kernel: run on this machine's, and in virtual machines on others (see
// boot.sh). Shares are asserted, not times: an emulated machine is slow. So one recording serves several tests; each
// test makes a row of ./test's table of kernels. That the kernel's side alone is right there, test_kernel_side says.
//
// WINDLASS_KERNELS_SECONDS: how long each workload runs; WINDLASS_KERNELS_HZ: how often it is sampled.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "integration/truth_check.h"
#include "profiler/export/pprof.h"
#include "profiler/profile/profile.h"
#include "support/privilege.h"

namespace windlass::test {
namespace {

using namespace std::chrono_literals;
using profile::Profile;
using profile::Sample;

std::string setting(const char* name, const char* standard) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : standard;
}

// The share of whole stacks at least, of those that a sample can have; see beyond_handler().
constexpr double kWhole = 0.97;
const std::string kSeconds = setting("WINDLASS_KERNELS_SECONDS", "3");
const std::string kHertz = setting("WINDLASS_KERNELS_HZ", "499");

// A child process with its output in a file; it ends with this object.
class Process {
 public:
  Process(std::vector<std::string> arguments, const std::string& output) : pid_(fork()) {
    if (pid_ != 0) return;
    const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(126);
  }
  ~Process() {
    if (ended_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void interrupt() const { kill(pid_, SIGINT); }
  // Its exit status, as a shell reports it, if it has ended.
  std::optional<int> poll(int flags = WNOHANG) {
    if (!ended_ && waitpid(pid_, &status_, flags) == pid_) ended_ = true;
    if (!ended_) return std::nullopt;
    return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  }
  int wait() { return *poll(0); }

 private:
  pid_t pid_;
  bool ended_ = false;
  int status_ = 0;
};

Process load(const char* program) { return {{program, "3600"}, "/dev/null"}; }

// The names of a sample's user functions, innermost first, inlined ones included; "" for code without a name.
std::vector<std::string_view> names_of(const Profile& profile, const Sample& sample) {
  std::vector<std::string_view> names;
  for (const std::uint32_t index : sample.locations) {
    const auto& location = profile.locations[index];
    if (location.module != profile::kNone && profile.modules[location.module].is_kernel) continue;
    if (location.lines.empty()) names.emplace_back();
    for (const auto& line : location.lines) names.push_back(profile.functions[line.function].system_name);
  }
  return names;
}

std::string_view comm_of(const Profile& profile, const Sample& sample) {
  return sample.comm == profile::kNone ? std::string_view() : std::string_view(profile.strings[sample.comm]);
}

// Until the agent knows a process, which takes long in an emulated machine, samples come as raw stacks. Those of
// truth's signal handler, on a stack of its own, hold no more than that.
bool beyond_handler(const Profile& profile, const Sample& sample) {
  const auto is_trampoline = [](auto name) { return name == "__kernel_rt_sigreturn" || name == "__restore_rt"; };
  return sample.end == WL_END_UNREADABLE_STACK && std::ranges::any_of(names_of(profile, sample), is_trampoline);
}

struct Count {
  // Half-written: the kernel was changing the thread's registers, for a signal handler. `truth` has many.
  std::uint64_t samples = 0, whole = 0, beyond_handler = 0, half_written = 0;
  [[nodiscard]] double share() const {
    return static_cast<double>(whole) / static_cast<double>(samples - beyond_handler - half_written);
  }
};

// Of the samples whose command's name is `comm`; of all, if it is empty.
Count count(const Profile& profile, std::string_view comm = {}) {
  Count count;
  for (const Sample& sample : profile.samples) {
    if (!comm.empty() && comm_of(profile, sample) != comm) continue;
    count.samples += sample.count;
    count.whole += profile::is_whole(sample.end) ? sample.count : 0;
    count.beyond_handler += beyond_handler(profile, sample) ? sample.count : 0;
    count.half_written += sample.end == WL_END_REGISTER_LOST ? sample.count : 0;
  }
  return count;
}

// What one run of `windlass record` left behind.
struct Recording {
  int status = -1;
  std::string said;
  std::optional<Profile> profile;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Kernels : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder() = testing::TempDir() + fmt::format("windlass-kernels-{}", getpid());
    std::filesystem::create_directories(folder());
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder()); }
  void SetUp() override {
    if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  }

  static std::string& folder() {
    static std::string path;
    return path;
  }
  static std::string profile_path() { return folder() + "/p.pb.gz"; }
  static std::string log() { return folder() + "/log"; }
  static std::vector<std::string> record(std::vector<std::string> rest) {
    std::vector<std::string> all{WINDLASS_COMMAND, "record", "-v", "-F", kHertz, "-o", profile_path()};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  static Recording result(int status) {
    Recording recording{status, text_of(log()), std::nullopt};
    auto profile = exporter::read_pprof_file(profile_path());
    if (profile) recording.profile = std::move(*profile);
    std::filesystem::remove(profile_path());
    return recording;
  }

  // Two workloads as children of a shell, which exits with 7.
  static const Recording& commands() {
    static const Recording recording = [] {
      const std::string script = fmt::format("{} {s} & {} {s} & wait; exit 7", WINDLASS_TRUTH_PROGRAM,
                                             WINDLASS_STANDARD_LIBRARY, fmt::arg("s", kSeconds));
      Process process(record({"--", "sh", "-c", script}), log());
      const int status = process.wait();
      return result(status);
    }();
    return recording;
  }

  // The whole machine, ended by SIGINT; the workloads start when sampling has begun: a checkpoint is there.
  static Recording machine() {
    Process process(record({"-a"}), log());
    while (!process.poll() && !std::filesystem::exists(profile_path())) std::this_thread::sleep_for(50ms);
    {
      const Process truth = load(WINDLASS_TRUTH_PROGRAM), library = load(WINDLASS_STANDARD_LIBRARY);
      std::this_thread::sleep_for(std::chrono::duration<double>(process.poll() ? 0 : std::stod(kSeconds)));
    }
    process.interrupt();
    return result(process.wait());
  }

  // A row of the table of kernels, into the results for ./test to show.
  static void row(const Recording& recording, const Count& seen = {}, const std::string& wrong = "-") {
    utsname kernel{};
    uname(&kernel);
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    const std::string share = seen.samples != 0 ? fmt::format("{:.2f}%", 100.0 * seen.share()) : "-";
    const std::string lost = recording.profile ? std::to_string(recording.profile->lost) : "-";
    const std::string text = fmt::format("{:<22} {:<8} {:<22} {:>8} {:>8} {:>6} {:>5} {:>5}", kernel.release,
                                         kernel.machine, name, seen.samples, share, wrong, lost, recording.status);
    fmt::print("{}\n", text);
    RecordProperty("kernels_row", text);
  }
};

// No frame of a program whose every stack is known is wrong; truth_check itself is tested by test_truth.
TEST_F(Kernels, KnownStacks) {
  const Recording& recording = commands();
  if (!recording.profile) row(recording);
  ASSERT_TRUE(recording.profile) << recording.said;
  const TruthVerdict verdict = check_truth(*recording.profile, std::filesystem::canonical(WINDLASS_TRUTH_PROGRAM));
  const Count seen = count(*recording.profile, "truth");
  row(recording, seen, std::to_string(verdict.wrong));
  for (const auto& text : verdict.truncated) fmt::print("truncated, {}\n", text);
  for (const auto& text : verdict.examples) ADD_FAILURE() << text;
  EXPECT_EQ(verdict.wrong, 0u);
  EXPECT_GT(verdict.in_levels, 50u) << recording.said;
  EXPECT_GE(seen.share(), kWhole) << recording.said;
  EXPECT_LT(seen.beyond_handler * 10, seen.samples) << recording.said;
  EXPECT_LT(seen.half_written * 20, seen.samples) << recording.said;
}

// A stack of standard_library that cannot be: one of its work_ functions not called by main, or main not by _start.
bool impossible(const std::vector<std::string_view>& names) {
  const auto work = std::ranges::find_if(names, [](auto name) { return name.starts_with("work_"); });
  if (work == names.end()) return false;
  const auto caller =
      std::ranges::find_if(work, names.end(), [&](auto name) { return name != *work; });  // past its cold part
  return caller == names.end() || *caller != "main" || names.back() != "_start";
}

TEST_F(Kernels, StandardLibrary) {
  const Recording& recording = commands();
  if (!recording.profile) row(recording);
  ASSERT_TRUE(recording.profile) << recording.said;
  std::uint64_t wrong = 0;
  std::string all;
  for (const Sample& sample : recording.profile->samples) {
    const auto names = names_of(*recording.profile, sample);
    for (const auto name : names) all.append(name).append("\n");
    if (profile::is_truncated(sample.end) || !impossible(names)) continue;
    wrong += sample.count;
    ADD_FAILURE() << fmt::format("{}", fmt::join(names, "\n"));
  }
  const Count seen = count(*recording.profile, "standard_librar");  // 15 bytes of it
  row(recording, seen, std::to_string(wrong));
  EXPECT_GT(seen.samples, 50u) << recording.said;
  EXPECT_GE(seen.share(), 0.98) << recording.said;
  // Templates in the program, and functions of libstdc++.so and libgcc_s.so.
  for (const char* name : {"work_regex", "_Executor", "work_stream", "num_put", "work_throw", "_Unwind_RaiseException"})
    EXPECT_NE(all.find(name), std::string::npos) << name << " is in no stack";
}

// The checker of standard_library's stacks finds a stack without main, one with a frame put in, and one that ends
// early.
TEST(KernelsChecker, FindsImpossibleStacks) {
  EXPECT_FALSE(impossible({"malloc", "work_map", "main", "__libc_start_main", "_start"}));
  EXPECT_FALSE(impossible({"_Unwind_Resume", "work_throw", "work_throw", "main", "_start"}));
  EXPECT_FALSE(impossible({"_dl_start", "_start"}));
  EXPECT_TRUE(impossible({"malloc", "work_map", "__libc_start_main", "_start"}));
  EXPECT_TRUE(impossible({"malloc", "work_map", "malloc", "main", "_start"}));
  EXPECT_TRUE(impossible({"work_map", "main"}));
  EXPECT_TRUE(impossible({"work_map"}));
}

TEST_F(Kernels, ChildrenAndExitStatus) {
  const Recording& recording = commands();
  if (!recording.profile) row(recording);
  EXPECT_EQ(recording.status, 7) << recording.said;
  ASSERT_TRUE(recording.profile) << recording.said;
  const Count seen = count(*recording.profile);
  row(recording, seen);
  // The shell is not judged: it may be Busybox, of whose outermost frames there is no proof.
  for (const char* comm : {"truth", "standard_librar"}) {
    const Count child = count(*recording.profile, comm);
    EXPECT_GT(child.samples, seen.samples / 10) << comm << ": " << recording.said;
    EXPECT_GE(child.share(), kWhole) << comm << ": " << recording.said;
  }
}

TEST_F(Kernels, WholeMachine) {
  const Recording recording = machine();
  if (!recording.profile) row(recording);
  EXPECT_EQ(recording.status, 0) << recording.said;
  ASSERT_TRUE(recording.profile) << recording.said;
  const Count seen = count(*recording.profile);
  row(recording, seen);
  // What this machine runs besides is not for this test to judge.
  for (const char* comm : {"truth", "standard_librar"}) {
    const Count one = count(*recording.profile, comm);
    EXPECT_GT(one.samples, 20u) << comm << ": " << recording.said;
    EXPECT_GE(one.share(), kWhole) << comm << ": " << recording.said;
  }
}

}  // namespace
}  // namespace windlass::test
