// Registered code as debuggers and perf see it: whole stacks, with names and lines.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/perf_stacks.h"
#include "support/privilege.h"
#include "support/run_command.h"

namespace windlass {
namespace {

using test::run;

class JitDebuggers : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "windlass-jit-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] test::CommandResult gdb(const std::string& arguments) const {
    return run(fmt::format("cd '{}' && timeout 100 gdb -batch -nx -ex 'set debuginfod enabled off' {} 2>&1", folder_,
                           arguments));
  }

  // Are these in the text in this order?
  static testing::AssertionResult in_order(const std::string& text, const std::vector<std::string>& parts) {
    std::size_t at = 0;
    for (const std::string& part : parts) {
      at = text.find(part, at);
      if (at == std::string::npos) return testing::AssertionFailure() << "no " << part << " in its place in\n" << text;
      at += part.size();
    }
    return testing::AssertionSuccess();
  }
  static std::vector<std::string> chain(const std::string& before, const std::string& behind) {
    std::vector<std::string> names = {"in_code"};
    for (unsigned i = 0; i < 8; ++i) names.push_back(before + "stub" + std::to_string(i) + behind);
    names.emplace_back("main");
    return names;
  }

  std::string folder_;
};

TEST_F(JitDebuggers, GdbSeesNamesLinesAndCallers) {
  if (run("command -v gdb").status != 0) GTEST_SKIP() << "SKIPPED: there is no gdb";
  const auto seen =
      gdb(fmt::format("-ex run -ex bt -ex continue -ex 'info symbol $pc' --args '{}' gdb . 0", WINDLASS_JIT_TARGET));
  if (seen.output.find("SIGINT") == std::string::npos) GTEST_SKIP() << "SKIPPED: gdb runs no programs here";
  EXPECT_TRUE(in_order(seen.output, chain(" in ", " () at generated.js:42"))) << seen.output;
  EXPECT_NE(seen.output.find("exited normally"), std::string::npos) << "unregistered under gdb's eyes: " << seen.output;
}

// A child of fork() has its parent's list, and tells of what it removes itself.
TEST_F(JitDebuggers, GdbSeesThemInAChildThatItFollows) {
  if (run("command -v gdb").status != 0) GTEST_SKIP() << "SKIPPED: there is no gdb";
  const auto seen = gdb(fmt::format(
      "-ex 'set follow-fork-mode child' -ex run -ex bt -ex continue --args '{}' gdb . fork", WINDLASS_JIT_TARGET));
  if (seen.output.find("SIGINT") == std::string::npos) GTEST_SKIP() << "SKIPPED: gdb runs no programs here";
  EXPECT_NE(seen.output.find("[Attaching after"), std::string::npos) << seen.output;
  EXPECT_TRUE(in_order(seen.output, chain(" in ", " () at generated.js:42"))) << seen.output;
  EXPECT_NE(seen.output.find("exited normally"), std::string::npos) << "unregistered under gdb's eyes: " << seen.output;
}

TEST_F(JitDebuggers, GdbSeesThemInACoreFile) {
  if (run("command -v gdb").status != 0) GTEST_SKIP() << "SKIPPED: there is no gdb";
  const auto made =
      gdb(fmt::format("-ex run -ex 'generate-core-file core' -ex kill --args '{}' gdb . 0", WINDLASS_JIT_TARGET));
  if (made.output.find("SIGINT") == std::string::npos) GTEST_SKIP() << "SKIPPED: gdb runs no programs here";
  const auto seen = gdb(fmt::format("-ex bt '{}' core", WINDLASS_JIT_TARGET));
  EXPECT_TRUE(in_order(seen.output, chain(" in ", " () at generated.js:42"))) << seen.output;
}

class PerfInject : public JitDebuggers, public testing::WithParamInterface<const char*> {};

// Without unwind information in the file perf goes wrong at the first frame that only that explains. Code that moves is
// found at both of its places.
TEST_P(PerfInject, MakesWholeStacksOfAJitdump) {
  const auto perf = test::perf_stacks(folder_, fmt::format("'{}' {} . 1", WINDLASS_JIT_TARGET, GetParam()));
  if (!perf.skipped.empty()) GTEST_SKIP() << perf.skipped;
  const std::string seen = perf.script.output.substr(0, 3000);
  ASSERT_EQ(perf.script.status, 0) << seen;
  std::size_t samples = 0, whole = 0;
  for (const std::string& stack : perf.stacks)
    if (stack.find("in_code") != std::string::npos) ++samples, whole += in_order(stack, chain("", "")) ? 1 : 0;
  fmt::print("perf: {} samples in the code, {} whole\n", samples, whole);
  EXPECT_GT(samples, 100u) << seen;
  EXPECT_EQ(whole, samples) << seen;
}
INSTANTIATE_TEST_SUITE_P(Ways, PerfInject, testing::Values("jitdump", "moved"),
                         [](const auto& way) { return std::string(way.param); });

TEST_F(JitDebuggers, OurOwnRecordingNamesThemByThePerfMap) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const auto recorded = run(
      fmt::format("cd '{}' && '{}' record -o p.pb.gz -- '{}' perfmap /tmp 1 2>&1; '{}' report --folded p.pb.gz 2>&1",
                  folder_, WINDLASS_COMMAND, WINDLASS_JIT_TARGET, WINDLASS_COMMAND));
  for (unsigned i = 0; i < 8; ++i)
    EXPECT_NE(recorded.output.find("stub" + std::to_string(i)), std::string::npos) << recorded.output.substr(0, 4000);
}

}  // namespace
}  // namespace windlass
