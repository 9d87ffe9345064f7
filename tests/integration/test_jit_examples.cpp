// The examples that make code, each under every tool that has to see through it: whole stacks, and every name.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/perf_stacks.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass {
namespace {

using test::run;

struct Example {
  const char* name;
  std::vector<std::string> functions;  // the innermost first
};

// On the screen of a tool: called_back(), the generated functions, main(), in this order?
bool whole(const std::string& stack, const Example& example, const std::string& before, const std::string& behind) {
  std::size_t at = stack.find("called_back");
  for (const std::string& name : example.functions) {
    const std::string wanted = before + name + behind;
    at = at == std::string::npos ? at : stack.find(wanted, at);
  }
  return at != std::string::npos && stack.find("main", at) != std::string::npos;
}

class JitExamples : public testing::TestWithParam<Example> {
 protected:
  void SetUp() override {
    program_ = fmt::format("{}/example_{}", WINDLASS_EXAMPLES_DIR, GetParam().name);
    ASSERT_TRUE(std::filesystem::exists(program_)) << "not built: its library was not found";
    std::string folder = testing::TempDir() + "windlass-jit-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] test::CommandResult in_folder(const std::string& command) const {
    return run(fmt::format("cd '{}' && {} 2>&1", folder_, command));
  }

  std::string program_, folder_;
};

TEST_P(JitExamples, BothUnwindersGoThrough) {
  const auto seen = in_folder(fmt::format("'{}' .", program_));
  EXPECT_EQ(seen.status, 0) << seen.output;
  const bool bytes = std::string(GetParam().name) == "jit_bytes";
  for (const char* text :
       {"libgcc: 3 generated frames\n", "windlass: 3 generated frames, complete\n", "caught, thrown"})
    EXPECT_TRUE(bytes || seen.output.find(text) != std::string::npos) << seen.output;
}

TEST_P(JitExamples, Gdb) {
  if (run("command -v gdb").status != 0) GTEST_SKIP() << "SKIPPED: there is no gdb";
  const auto seen = in_folder(fmt::format(
      "timeout 100 gdb -batch -nx -ex 'set debuginfod enabled off' -ex run -ex bt --args '{}' stop .", program_));
  if (seen.output.find("SIGINT") == std::string::npos) GTEST_SKIP() << "SKIPPED: gdb runs no programs here";
  EXPECT_TRUE(whole(seen.output, GetParam(), " in ", " ()")) << seen.output;
}

TEST_P(JitExamples, PerfInject) {
  const auto perf = test::perf_stacks(folder_, fmt::format("'{}' spin .", program_));
  if (!perf.skipped.empty()) GTEST_SKIP() << perf.skipped;
  ASSERT_EQ(perf.script.status, 0) << perf.script.output.substr(0, 2000);
  std::size_t samples = 0, good = 0;
  std::string first_bad;
  for (const std::string& stack : perf.stacks) {
    if (stack.find("called_back") == std::string::npos || stack.find("_Unwind_") != std::string::npos) continue;
    ++samples;
    const bool is_whole = whole(stack, GetParam(), " ", "\n");
    good += is_whole ? 1 : 0;
    if (!is_whole && first_bad.empty()) first_bad = stack;
  }
  fmt::print("perf: {} samples above the generated code, {} whole\n", samples, good);
  EXPECT_GT(samples, 50u) << perf.script.output.substr(0, 2000);
  EXPECT_EQ(good, samples) << first_bad;
}

TEST_P(JitExamples, OurWalkOfTheLivingProcess) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const int unused [[maybe_unused]] = ::chdir(folder_.c_str());
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(126);
    ::execl(program_.c_str(), program_.c_str(), "spin", ".", nullptr);
    _exit(127);
  }
  bool seen_whole = false;
  std::string last;
  // It computes for a second of its own processor time.
  for (int status = 0; !seen_whole && ::waitpid(pid, &status, WNOHANG) == 0;) {
    const auto walked = run(fmt::format("'{}' walk {} 2>&1", WINDLASS_COMMAND, pid));
    if (walked.output.find("called_back") == std::string::npos) continue;
    last = walked.output;
    seen_whole = whole(walked.output, GetParam(), " ", "");
    if (!seen_whole) break;
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_TRUE(seen_whole) << last;
}

TEST_P(JitExamples, OurRecording) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto recorded = in_folder(fmt::format(
      "'{0}' record -o p.pb.gz -- '{1}' spin . && '{0}' report --folded p.pb.gz", WINDLASS_COMMAND, program_));
  std::string chain = "main;";
  const auto& names = GetParam().functions;
  for (auto name = names.rbegin(); name != names.rend(); ++name) chain += *name + ";";
  chain += "called_back";
  std::size_t samples = 0, good = 0, truncated = 0;
  std::istringstream lines(recorded.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(";called_back") == std::string::npos) continue;
    const auto count = static_cast<std::size_t>(std::atoi(line.c_str() + line.rfind(' ')));
    samples += count;
    if (line.find(chain) != std::string::npos)
      good += count;
    else if (line.find(";[truncated: ") != std::string::npos)
      truncated += count;
  }
  fmt::print("record: {} samples above the generated code, {} whole, {} truncated\n", samples, good, truncated);
  EXPECT_EQ(good + truncated, samples) << "none is wrong\n" << recorded.output.substr(0, 4000);
  // A perf map has names alone, so the code is read from the process. The last samples arrive when the process is gone:
  // a tenth of them if other programs use the processor.
  EXPECT_GT(good, 700u) << recorded.output.substr(0, 4000);
}

INSTANTIATE_TEST_SUITE_P(All, JitExamples,
                         testing::Values(Example{"jit_bytes", {"generated"}},
                                         Example{"jit_asmjit_cpp", {"evaluate", "optimize", "parse"}},
                                         Example{"jit_orc_cpp", {"evaluate", "optimize", "parse"}}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace windlass
