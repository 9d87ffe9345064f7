// examples/runtime: a language on the library's public headers. Its programs print the right output in every mode, no
// walk differs from the shadow stack, and tools see its stacks whole.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "support/privilege.h"
#include "support/run_command.h"
#include "support/whole.h"

namespace windlass {
namespace {

using test::run;

std::string program(const std::string& name) { return fmt::format("{}/{}.lilt", LILT_PROGRAMS, name); }

std::string expected(const std::string& name) {
  std::ifstream stream(fmt::format("{}/{}.expected", LILT_PROGRAMS, name));
  return {std::istreambuf_iterator<char>(stream), {}};
}

// In front of a program of another machine: what runs it.
constexpr bool kEmulated = sizeof LILT_EMULATOR > 1;

std::string lilt(const std::string& arguments) { return fmt::format("{} '{}' {}", LILT_EMULATOR, LILT, arguments); }

// ---- programs -----------------------------------------------------------------------------------------------------

class LiltPrograms : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(LiltPrograms, PrintWhatTheyShould) {
  const auto& [name, options] = GetParam();
  const auto seen = run(fmt::format("timeout {} {} '{}' 2>/dev/null", 300, lilt(options), program(name)));
  EXPECT_EQ(seen.status, 0) << "4: a walk was wrong";
  EXPECT_EQ(seen.output, expected(name));
}

std::vector<const char*> modes() {
  if (kEmulated && !test::whole())
    return {"--tier-up=1", "--gc-stress --check-stacks", "--gc-stress --check-stacks --tier-up=1"};
  return {"--tier0",
          "--tier-up=1",
          "--tier-up=2 --again=3",
          "--heap=65536",
          "--gc-stress --check-stacks",
          "--gc-stress --check-stacks --tier-up=1",
          "--gc-stress --check-stacks --tier-up=1 --windows-unwind"};
}

INSTANTIATE_TEST_SUITE_P(All, LiltPrograms,
                         testing::Combine(testing::Values("nbody", "binary_trees", "json", "quicksort", "mandelbrot",
                                                          "exceptions"),
                                          testing::ValuesIn(modes())));

TEST(Lilt, ACollectorAtEachCallComparesStacks) {
  const auto seen = run(fmt::format("{} '{}' 2>&1 >/dev/null", lilt("--gc-stress --check-stacks"), program("json")));
  unsigned long walks = 0, frames = 0, wrong = 1;
  ASSERT_EQ(std::sscanf(seen.output.c_str(), "%lu walks checked, %lu frames, %lu wrong", &walks, &frames, &wrong), 3)
      << seen.output;
  EXPECT_GT(walks, 400u);
  EXPECT_GT(frames, 4 * walks);
  EXPECT_EQ(wrong, 0u);
}

// Threads that throw, collect, stop one another and are compiled again, walked from signals at 10 kHz meanwhile. Five
// minutes of it, in one process, with WINDLASS_WHOLE=1. An emulated walk takes longer than there is between two samples
// of so many a second.
TEST(Lilt, SampledUnderStress) {
  constexpr int kRounds = kEmulated ? 5 : 24;
  const std::string source = testing::TempDir() + fmt::format("stress-{}.lilt", ::getpid());
  const std::string options =
      fmt::format("--sample={} --tier-up=2 --again=3 --seconds={}", kEmulated ? 5000 : 100, test::whole() ? 300 : 0);
  const auto seen = run(fmt::format("sed 's/rounds = 300/rounds = {}/' '{}' > '{}' && timeout {} {} '{}' 2>&1", kRounds,
                                    program("stress"), source, test::whole() ? 400 : 100, lilt(options), source));
  std::filesystem::remove(source);
  const std::string total = fmt::format("{}\n", 8 * kRounds);
  std::size_t at = 0;
  for (; seen.output.compare(at, total.size(), total) == 0; at += total.size()) {}
  unsigned long walks = 0, wrong = 1;
  ASSERT_EQ(std::sscanf(seen.output.c_str() + at, "%lu walks checked, %*u frames, %lu wrong", &walks, &wrong), 2)
      << seen.output;
  fmt::print("{}", seen.output.substr(at));
  EXPECT_GE(at, 4 * total.size());
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(walks, kEmulated ? 50u : 1000u);
}

TEST(Lilt, WhatNobodyCatchesIsShownWithItsStack) {
  const auto seen = run(fmt::format(
      "printf 'fn f(n: int): int {{ if (n == 0) return 1 / n; return f(n - 1); }}\\nprint(f(2));\\n' | {} 2>&1",
      lilt("")));
  EXPECT_EQ(seen.status, 1);
  EXPECT_EQ(seen.output, "unhandled Error: division by zero\n  at f\n  at f\n  at f\n  at main\n");
}

TEST(Lilt, ReadsALineAtATime) {
  const auto seen =
      run(fmt::format("printf 'fn f(n: int): int {{\\n return n * 2;\\n}}\\nprint(f(4));\\nprint(x);\\n"
                      "print(f(5));\\n' | {} 2>&1",
                      lilt("")));
  EXPECT_EQ(seen.output, "8\nline 1: unknown name x\n10\n");
}

// ---- tools --------------------------------------------------------------------------------------------------------

// All names, in this order?
bool in_order(const std::string& text, std::initializer_list<const char*> names) {
  std::size_t at = 0;
  for (const char* name : names)
    if ((at = text.find(name, at)) == std::string::npos) return false;
  return true;
}

TEST(Lilt, OurWalkShowsItsStack) {
  if (kEmulated) GTEST_SKIP() << "SKIPPED: from outside an emulated program is the emulator";
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::execl(LILT, LILT, program("stack").c_str(), nullptr);
    _exit(127);
  }
  test::CommandResult walked;
  for (int i = 0; i < 3000 && walked.output.find("spin") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    walked = run(fmt::format("'{}' walk {} 2>&1", WINDLASS_COMMAND, pid));
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_TRUE(in_order(walked.output, {" spin", " innermost", " apply<int>", " lambda:11", " lilt_enter", "qsort",
                                       " outer", " main", "lilt_enter", " main", "_start"}))
      << walked.output;
}

TEST(Lilt, OurRecordingShowsIt) {
  if (kEmulated) GTEST_SKIP() << "SKIPPED: from outside an emulated program is the emulator";
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string profile = testing::TempDir() + fmt::format("lilt-{}.pb.gz", ::getpid());
  const auto seen = run(fmt::format("'{0}' record -o '{1}' -- timeout 1 '{2}' '{3}'; '{0}' report --folded '{1}'",
                                    WINDLASS_COMMAND, profile, LILT, program("stack")));
  std::filesystem::remove(profile);
  EXPECT_TRUE(in_order(seen.output, {";main;outer;", "qsort", "lambda:11;apply<int>;innermost:value;innermost;spin"}))
      << seen.output.substr(0, 2000);
}

TEST(Lilt, GdbShowsIt) {
  if (kEmulated) GTEST_SKIP() << "SKIPPED: from outside an emulated program is the emulator";
  if (run("command -v gdb").status != 0) GTEST_SKIP() << "SKIPPED: there is no gdb";
  const auto seen = run(fmt::format(
      "timeout 100 gdb -batch -nx -ex 'set debuginfod enabled off' -ex 'handle SIGALRM stop' -ex run -ex bt --args "
      "'{}' --gdb --alarm=1 '{}' 2>&1",
      LILT, program("stack")));
  if (seen.output.find("SIGALRM,") == std::string::npos) GTEST_SKIP() << "SKIPPED: gdb runs no programs here";
  EXPECT_TRUE(in_order(seen.output, {" in spin ()", "innermost ()", "apply<int> ()", "lambda:11 ()", "qsort",
                                     " outer ()", " in main ()", " main ("}))
      << seen.output;
}

}  // namespace
}  // namespace windlass
