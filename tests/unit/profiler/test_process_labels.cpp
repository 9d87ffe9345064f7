#include "profiler/processes/process_labels.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "os/proc_file.h"
#include "os/readers.h"
#include "support/ended_main_thread.h"
#include "support/hostile_text.h"
#include "support/process_reading.h"
#include "support/run_command.h"

namespace windlass::profiler {
namespace {

using Labels = std::vector<Label>;

std::string value_of(const Labels& labels, std::string_view key) {
  const auto found = std::ranges::find(labels, key, &Label::key);
  return found != labels.end() ? found->value : "(none)";
}

LabelOptions nothing() {
  return {.process = false,
          .executable = false,
          .build_id = false,
          .owner = false,
          .cgroup = false,
          .unit = false,
          .container = false,
          .kubernetes = false,
          .environment = {},
          .fixed = {}};
}

// `sleep` with these variables.
class Sleeper {
 public:
  explicit Sleeper(const std::vector<std::string>& environment) {
    int pipe[2];
    EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      std::vector<char*> variables;
      for (const std::string& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
      variables.push_back(nullptr);
      char name[] = "sleep", time[] = "1000";
      char* arguments[] = {name, time, nullptr};
      ::execve("/bin/sleep", arguments, variables.data());
      ::_exit(1);
    }
    ::close(pipe[1]);
    char end;
    EXPECT_EQ(::read(pipe[0], &end, 1), 0);  // the new program has begun
    ::close(pipe[0]);
    // The kernel closes descriptors before it says where the new environment is.
    const auto has_environment = [&] {
      return std::ifstream(fmt::format("/proc/{}/environ", pid_)).peek() != std::ifstream::traits_type::eof();
    };
    for (int i = 0; i < 10'000 && !environment.empty() && !has_environment(); ++i) ::usleep(1000);
  }
  ~Sleeper() {
    end();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  // What is left is a zombie.
  void end() const {
    ::kill(pid_, SIGKILL);
    siginfo_t how;
    ::waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOWAIT);
  }
  [[nodiscard]] std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }

 private:
  pid_t pid_;
};

TEST(ProcessLabels, OfThisProcess) {
  // qemu-user is the program of each process but the one that asks.
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const auto pid = static_cast<std::uint32_t>(::getpid());
  const Labels labels = ProcessLabels({}).of(pid);
  EXPECT_TRUE(std::ranges::is_sorted(labels, std::ranges::less_equal(), &Label::key));
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  EXPECT_EQ(value_of(labels, "process.pid"), std::to_string(pid));
  EXPECT_EQ(value_of(labels, "process.executable.path"), path);
  EXPECT_EQ(value_of(labels, "process.executable.name"), "test_labels");
  const std::string notes = test::run("readelf -n " + path).output;
  EXPECT_NE(notes.find("Build ID: " + value_of(labels, "process.executable.build_id.gnu") + "\n"), std::string::npos);
  const passwd* user = ::getpwuid(::geteuid());
  EXPECT_EQ(value_of(labels, "process.owner"), user != nullptr ? user->pw_name : std::to_string(::geteuid()));
  const std::string cgroup = value_of(labels, "process.linux.cgroup");
  EXPECT_NE(os::read_proc_file("/proc/self/cgroup").find(":" + cgroup + "\n"), std::string::npos) << cgroup;
}

TEST(ProcessLabels, TheCgroupAloneCanBeChosen) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  LabelOptions options = nothing();
  options.cgroup = true;
  const Labels labels = ProcessLabels(options).of(static_cast<std::uint32_t>(::getpid()));
  ASSERT_EQ(labels.size(), 1u);
  EXPECT_EQ(labels[0].key, "process.linux.cgroup");
}

TEST(ProcessLabels, OnlyWhatIsChosen) {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  EXPECT_EQ(ProcessLabels(nothing()).of(pid), Labels());
  LabelOptions options = nothing();
  options.owner = true;
  const Labels labels = ProcessLabels(options).of(pid);
  ASSERT_EQ(labels.size(), 1u);
  EXPECT_EQ(labels[0].key, "process.owner");
}

TEST(ProcessLabels, FixedOnesWin) {
  LabelOptions options = nothing();
  options.process = true;
  options.fixed = {{"region", "eu"}, {"process.pid", "mine"}, {"a", ""}, {"region", "us"}};
  EXPECT_EQ(ProcessLabels(options).of(static_cast<std::uint32_t>(::getpid())),
            (Labels{{"a", ""}, {"process.pid", "mine"}, {"region", "us"}}));
}

TEST(ProcessLabels, Variables) {
  LabelOptions options = nothing();
  options.environment = {"TWICE", "EMPTY", "NONE", "LONG", "A", "HOSTILE"};
  const std::string hostile = test::hostile_file_name();
  const Sleeper sleeper({"AB=no", "TWICE=first", "TWICE=second", "EMPTY=", "no assignment",
                         "LONG=" + std::string(5000, 'x'), "xA=no", "A=a=b", "HOSTILE=" + hostile});
  EXPECT_EQ(ProcessLabels(options).of(sleeper.pid()), (Labels{{"env.A", "a=b"},
                                                              {"env.HOSTILE", hostile},
                                                              {"env.LONG", std::string(ProcessLabels::kMostValue, 'x')},
                                                              {"env.TWICE", "first"}}));
}

// What is beyond the bound is not seen, and costs nothing.
TEST(ProcessLabels, ALongEnvironment) {
  std::vector<std::string> variables = {"FIRST=1"};
  for (int i = 0; i < 12; ++i) variables.push_back(fmt::format("V{}={}", i, std::string(100000, 'v')));
  variables.emplace_back("LAST=1");
  const Sleeper sleeper(variables);
  LabelOptions options = nothing();
  options.environment = {"FIRST", "LAST"};
  EXPECT_EQ(ProcessLabels(options).of(sleeper.pid()), (Labels{{"env.FIRST", "1"}}));
}

TEST(ProcessLabels, FindVariable) {
  using namespace std::string_literals;
  EXPECT_STREQ(find_variable("A=1\0B=2"s, "B"), "2");
  EXPECT_STREQ(find_variable("A=1\0B="s, "B"), "");
  EXPECT_EQ(find_variable("A=1\0\0\0B"s, "B"), nullptr);
  EXPECT_EQ(find_variable("", "B"), nullptr);
  EXPECT_STREQ(find_variable("=x\0"s, ""), "x");
}

TEST(ProcessLabels, AProgramThatWasRemoved) {
  const std::string copy = fmt::format("/tmp/windlass-labels-{}", ::getpid());
  std::filesystem::copy_file("/bin/sleep", copy);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl(copy.c_str(), "sleep", "1000", nullptr);
    ::_exit(1);
  }
  const std::string link = fmt::format("/proc/{}/exe", pid);
  for (int i = 0; i < 20000 && std::filesystem::read_symlink(link) != copy; ++i) ::usleep(1000);
  std::filesystem::remove(copy);
  EXPECT_EQ(std::filesystem::read_symlink(link), copy + " (deleted)");
  const Labels labels = ProcessLabels({}).of(static_cast<std::uint32_t>(pid));
  EXPECT_EQ(value_of(labels, "process.executable.path"), copy);
  EXPECT_EQ(value_of(labels, "process.executable.build_id.gnu"),
            value_of(ProcessLabels({}).of(Sleeper({}).pid()), "process.executable.build_id.gnu"));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST(ProcessLabels, AProcessThatHasGone) {
  LabelOptions options;
  options.environment = {"A"};
  options.fixed = {{"k", "v"}};
  ProcessLabels of_processes(options);
  std::uint32_t pid = 0;
  {
    const Sleeper sleeper({"A=1"});
    pid = sleeper.pid();
    sleeper.end();
    const Labels labels = of_processes.of(pid);
    EXPECT_EQ(value_of(labels, "process.pid"), std::to_string(pid));
    EXPECT_EQ(value_of(labels, "process.executable.path"), "(none)");
    EXPECT_EQ(value_of(labels, "env.A"), "(none)");
  }
  EXPECT_EQ(of_processes.of(pid), (Labels{{"k", "v"}}));
  EXPECT_EQ(of_processes.of(0), (Labels{{"k", "v"}}));
  EXPECT_EQ(of_processes.of(0xffffffff), (Labels{{"k", "v"}}));
}

TEST(ProcessLabels, TheEffectiveUser) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const char done = ::setresuid(1, 65533, 0) == 0 ? 'y' : 'n';
    (void)!::write(pipe[1], &done, 1);
    for (;;) ::pause();
  }
  char done = 'n';
  EXPECT_EQ(::read(pipe[0], &done, 1), 1);
  LabelOptions options = nothing();
  options.owner = true;
  const Labels labels = ProcessLabels(options).of(static_cast<std::uint32_t>(pid));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  for (const int end : pipe) ::close(end);
  if (done != 'y') GTEST_SKIP() << "no privilege to become somebody else";
  EXPECT_EQ(labels, (Labels{{"process.owner", "65533"}}));
}

TEST(ProcessLabels, AFirstThreadThatHasEnded) {
  if (const std::string reason = test::no_process_reading(); !reason.empty()) GTEST_SKIP() << reason;
  const test::EndedMainThread process([](void*) -> void* {
    for (;;) ::pause();
  });
  ASSERT_TRUE(process.ready());
  LabelOptions options = nothing();
  options.executable = true;
  options.build_id = true;
  const Labels labels = ProcessLabels(options).of(static_cast<std::uint32_t>(process.pid()));
  EXPECT_EQ(labels, ProcessLabels(options).of(static_cast<std::uint32_t>(::getpid())));
  EXPECT_EQ(labels.size(), 3u);
}

TEST(ProcessLabels, TheSameByReaders) {
  const Sleeper sleeper({"A=1"});
  LabelOptions options;
  options.environment = {"A"};
  const Labels alone = ProcessLabels(options).of(sleeper.pid());
  EXPECT_EQ(value_of(alone, "env.A"), "1");
  os::use_readers(os::Readers::start());
  const Labels by_readers = ProcessLabels(options).of(sleeper.pid());
  os::use_readers(nullptr);
  EXPECT_EQ(by_readers, alone);
}

}  // namespace
}  // namespace windlass::profiler
