// i386 programs under this machine's kernel: tests/workloads/i386_stacks.cpp, whose every possible stack is known,
// recorded and looked at from outside.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "profiler/export/pprof.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "windlass/target.h"
#include "windlass_ends.h"

namespace windlass::test {
namespace {

using Names = std::vector<std::string>;

const std::string kProgram = WINDLASS_I386_PROGRAM;

// Why the program does not run here; empty where it does.
std::string cannot_run() {
  if (::access(kProgram.c_str(), X_OK) != 0) return "SKIPPED: no Clang or no LLD on this machine";
  const auto ran = run(kProgram + " 1 2>&1");
  if (ran.status == 0) return "";
  return fmt::format("SKIPPED: this kernel runs no i386 programs: status {}, {:.100}", ran.status, ran.output);
}

// Is it a stack that the program can have, the outermost function first? The way back from the handler is the vdso's.
std::string impossible(const Names& stack) {
  const Names plain = {"_start", "run", "plain_path", "outer", "middle", "spin"};
  const Names signalled = {"_start", "run", "signal_path", "[vdso]", "handler", "outer", "middle", "spin"};
  const Names in_thread = {"thread_start", "thread_main", "plain_path", "outer", "middle", "spin"};
  const Names makes_thread = {"_start", "run", "clone_thread"};
  if (stack.empty()) return "no frame at all";
  for (const Names& whole : {plain, signalled, in_thread, makes_thread})
    if (stack.size() <= whole.size() && std::equal(stack.begin(), stack.end(), whole.begin())) return "";
  return fmt::format("{}", fmt::join(stack, " > "));
}

// Functions as they are in the machine code, the outermost first; the kernel's are left out.
Names names_of(const profile::Profile& profile, const profile::Sample& sample) {
  Names names;
  for (const std::uint32_t index : sample.locations) {
    const auto& location = profile.locations[index];
    const std::string path = location.module != profile::kNone ? profile.modules[location.module].path : "";
    if (location.module != profile::kNone && profile.modules[location.module].is_kernel) continue;
    if (path == "[vdso]")
      names.push_back(path);
    else
      names.push_back(location.lines.empty() ? "?" : profile.functions[location.lines.back().function].system_name);
  }
  std::reverse(names.begin(), names.end());
  return names;
}

struct Verdict {
  std::uint64_t samples = 0, complete = 0, half_written = 0, wrong = 0, signalled = 0;
  std::string output;
};

Verdict record(const std::string& options, const std::string& arguments) {
  const std::string file = testing::TempDir() + "windlass-i386.pb.gz";
  const auto recorded =
      run(fmt::format("{} record {} -o {} -- {} {} 2>&1", WINDLASS_COMMAND, options, file, kProgram, arguments));
  EXPECT_EQ(recorded.status, 0) << recorded.output;
  const auto profile = exporter::read_pprof_file(file);
  EXPECT_TRUE(profile) << profile.error().text();
  Verdict verdict{.output = recorded.output};
  if (!profile) return verdict;
  for (const profile::Sample& sample : profile->samples) {
    // Not the command before it became the program, nor the program before its first instruction or after its last.
    if (profile->strings[sample.comm] != "i386_stacks" || sample.end == WL_END_KERNEL_ONLY) continue;
    const Names names = names_of(*profile, sample);
    verdict.samples += sample.count;
    if (sample.end == WL_END_REGISTER_LOST) verdict.half_written += sample.count;
    if (sample.end != WL_END_COMPLETE) continue;
    verdict.complete += sample.count;
    if (std::ranges::find(names, "handler") != names.end()) verdict.signalled += sample.count;
    const std::string why = impossible(names);
    if (why.empty()) continue;
    verdict.wrong += sample.count;
    if (verdict.wrong == sample.count) ADD_FAILURE() << why;
  }
  fmt::print("{} samples, {} complete, {} of them in the handler, {} wrong\n", verdict.samples, verdict.complete,
             verdict.signalled, verdict.wrong);
  EXPECT_GT(verdict.samples, 1000u);
  EXPECT_EQ(verdict.wrong, 0u);
  return verdict;
}

TEST(I386Record, EverySampleIsWholeAndPossible) {
  if (const std::string reason = cannot_run(); !reason.empty()) GTEST_SKIP() << reason;
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const Verdict verdict = record("-F 4999", "30000");
  EXPECT_GT(verdict.signalled, 300u);
  // While the kernel calls a handler or leaves one, the registers are of two states, and lead to no caller.
  EXPECT_LT(verdict.half_written * 100, verdict.samples);
  EXPECT_GE(static_cast<double>(verdict.complete + verdict.half_written), 0.999 * static_cast<double>(verdict.samples));
}

// While the kernel makes a signal's frame or takes one down, the program's registers are new in part.
TEST(I386Record, SignalsOneAfterTheOther) {
  if (const std::string reason = cannot_run(); !reason.empty()) GTEST_SKIP() << reason;
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  EXPECT_GT(record("-F 19999", "100000 storm").signalled, 100u);
}

// Above a thread's control block is what others have there, which would fill every sample's copy of the stack.
TEST(I386Record, TheStackOfAThreadAndNoMore) {
  if (const std::string reason = cannot_run(); !reason.empty()) GTEST_SKIP() << reason;
  if (const std::string reason = no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  std::string output = record("-v -F 4999", "15000 thread").output;
  std::erase(output, ',');
  const std::size_t line = output.find("new stacks");
  ASSERT_NE(line, std::string::npos) << output;
  unsigned long long events = 0, bytes = 0;
  ASSERT_EQ(std::sscanf(output.c_str() + line, "new stacks %llu unwound by the agent (%llu bytes", &events, &bytes), 2)
      << output;
  EXPECT_GT(events, 1000u);
  EXPECT_LT(bytes / events, 8192u);
}

// The judge itself.
TEST(I386Record, WhatIsImpossibleIsFound) {
  EXPECT_EQ(impossible({"_start", "run", "plain_path", "outer"}), "");
  EXPECT_NE(impossible({"_start", "run", "outer", "middle"}), "");
  EXPECT_NE(impossible({"run", "plain_path"}), "");
  EXPECT_NE(impossible({"_start", "run", "signal_path", "handler"}), "");
  EXPECT_NE(impossible({}), "");
}

// The program, standing still in a system call.
class StandingStill {
 public:
  StandingStill() {
    int fds[2];
    if (::pipe(fds) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(fds[1], 1);
      ::close(fds[0]);
      ::close(fds[1]);
      ::execl(kProgram.c_str(), kProgram.c_str(), "0", nullptr);
      ::_exit(1);
    }
    ::close(fds[1]);
    char text[6] = {};
    if (::read(fds[0], text, 5) == 5) ::usleep(20000);  // into the call
    ::close(fds[0]);
  }
  ~StandingStill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  StandingStill(const StandingStill&) = delete;
  StandingStill& operator=(const StandingStill&) = delete;
  [[nodiscard]] std::uint64_t id() const { return static_cast<std::uint64_t>(pid_); }

 private:
  pid_t pid_ = -1;
};

TEST(I386Process, FromOutside) {
  if (const std::string reason = cannot_run(); !reason.empty()) GTEST_SKIP() << reason;
  const StandingStill program;
  {
    auto target = open_process(program.id());
    ASSERT_TRUE(target) << target.error().text();
    EXPECT_EQ(target->space.architecture(), Architecture::kI386);
    ASSERT_EQ(target->threads.size(), 1u);
    StackWalker walker(target->space, target->threads[0].registers);
    std::size_t frames = 1, signal_frames = 0;
    while (walker.step()) {
      ++frames;
      signal_frames += walker.frame().signal_frame ? 1 : 0;
    }
    EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
    EXPECT_EQ(walker.certainty(), FrameCertainty::kDescribed);
    EXPECT_EQ(frames, 8u);
    EXPECT_EQ(signal_frames, 1u);
    EXPECT_TRUE(target->refresh()) << "the process is the same program still";
  }
  const auto printed = run(fmt::format("{} walk -p {} 2>&1", WINDLASS_COMMAND, program.id()));
  EXPECT_EQ(printed.status, 0) << printed.output;
  std::size_t at = 0;
  for (const char* name : {"spin", "middle", "outer", "handler", "signal_path", "run", "_start"}) {
    const std::size_t found = printed.output.find(name, at);
    ASSERT_NE(found, std::string::npos) << name << "\n" << printed.output;
    at = found;
  }
}

}  // namespace
}  // namespace windlass::test
