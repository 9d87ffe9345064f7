// Stacks of Java's HotSpot, from outside, against what the runtime itself prints of them: Java of our own
// (hotspot/Chains.java) on the virtual machines of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "integration/hotspot/program.h"
#include "support/core_of.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/tested_version.h"
#include "windlass/function_ref.h"

namespace windlass {
namespace {

using nlohmann::json;
using test::run;

struct JavaFrame {
  std::string text;  // "Class.method File.java LINE"
  std::string certainty;
};
struct JavaThread {
  std::string end;
  std::vector<JavaFrame> frames;  // from the bottom of the chain up to main
};

std::string text_of(const json& frame) {
  return fmt::format("{} {} {}", frame.value("function", ""), frame.value("file", ""), frame.value("line", 0));
}

// What stands above Chains.bottom, inlined methods too; hidden classes' are not printed by the runtime.
JavaThread walk(const std::string& what) {
  std::istringstream lines(run(WINDLASS_COMMAND " walk --json -i -l " + what + " 2>/dev/null").output);
  for (std::string line; std::getline(lines, line);) {
    const json read = json::parse(line);
    JavaThread thread{read["end"], {}};
    const auto add = [&](const json& frame, const std::string& certainty) {
      const std::string text = text_of(frame);
      const bool is_ours = !thread.frames.empty() || text.starts_with("Chains.bottom ");
      if (is_ours && text.find("$$Lambda") == std::string::npos && text.find("[Stub") == std::string::npos)
        thread.frames.push_back({text, certainty});
    };
    for (const json& frame : read["frames"]) {
      if (frame["module"].is_string() && !frame["module"].get<std::string>().starts_with("[")) continue;
      if (frame.contains("inlined"))
        for (const json& inlined : frame["inlined"]) add(inlined, frame["certainty"]);
      if (!frame["function"].is_null()) add(frame, frame["certainty"]);
    }
    if (!thread.frames.empty()) return thread;
  }
  return {};
}

class HotSpot : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { why_not_ = test::make_chains(); }
  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
  }
  static inline std::string why_not_;  // NOLINT
};

void expect_what_the_runtime_prints(const std::string& launcher, const char* option, const std::string& folder) {
  SCOPED_TRACE(launcher + " " + option);
  const test::JavaProgram program(launcher, {option}, {"stack"}, "Chains", folder);
  std::vector<std::string> printed = program.printed();
  ASSERT_GT(printed.size(), 10U);
  printed.erase(printed.begin());  // getStackTrace itself
  const JavaThread thread = walk("-p " + std::to_string(program.pid()));
  EXPECT_EQ(thread.end, "complete");
  std::vector<std::string> walked;
  for (const JavaFrame& frame : thread.frames) {
    walked.push_back(frame.text);
    EXPECT_EQ(frame.certainty, "described") << frame.text;
  }
  // Where it waits is another line than where it printed.
  ASSERT_FALSE(walked.empty());
  EXPECT_EQ(walked.front(), "Chains.bottom Chains.java 23");
  EXPECT_TRUE(printed.front().starts_with("Chains.bottom "));
  walked.erase(walked.begin());
  printed.erase(printed.begin());
  EXPECT_EQ(walked, printed);
}

TEST_F(HotSpot, StacksAreWhatTheRuntimePrints) {
  for (const std::string& launcher : test::java_launchers())
    for (const char* option : {"-Xint", "-Xshare:auto", "-Xcomp"})
      expect_what_the_runtime_prints(launcher, option, test::kHotSpotFolder);
}

TEST_F(HotSpot, ACoreHasTheSameStack) {
  const test::JavaProgram program(test::java_launchers().front(), {"-Xmx64m"}, {"stack"});
  ASSERT_GT(program.printed().size(), 10U);
  const test::CoreOf core(program.pid(), test::kHotSpotFolder + "/core");
  if (!core.why_not().empty()) GTEST_SKIP() << core.why_not();
  const JavaThread live = walk("-p " + std::to_string(program.pid())), dead = walk("--core " + core.path());
  EXPECT_EQ(dead.end, "complete");
  EXPECT_GT(live.frames.size(), 10U);
  ASSERT_EQ(dead.frames.size(), live.frames.size());
  for (std::size_t i = 0; i < live.frames.size(); ++i) EXPECT_EQ(dead.frames[i].text, live.frames[i].text);
}

// The chains that there can be, from main() on: each step of work() begins one. Before main() the class is initialised,
// with the Box among its steps.
bool is_possible(const std::vector<std::string>& chain) {
  if (chain == std::vector<std::string>{"<clinit>", "<init>"}) return true;
  if (chain.size() < 2 || chain[0] != "main" || chain[1] != "work") return chain.size() < 2;
  const auto turns = [&](std::size_t i) {  // left and right take turns, spin at the end
    for (; i < chain.size(); ++i) {
      const bool follows = chain[i] == "left" || chain[i] == "right" || chain[i] == "spin";
      if (!follows || (i > 0 && chain[i] == chain[i - 1]) || (chain[i] == "spin" && i + 1 != chain.size()))
        return false;
    }
    return true;
  };
  std::size_t i = 2;
  if (i < chain.size() && chain[i] == "go") ++i;
  if (i == chain.size()) return true;
  if (chain[i] == "alloc" || chain[i] == "locked" || chain[i] == "text") return turns(i + 1);
  if (chain[i] != "thrown") return turns(i);
  if (i + 1 < chain.size() && chain[i + 1] == "deep")
    return std::ranges::all_of(chain.begin() + static_cast<std::ptrdiff_t>(i) + 1, chain.end(),
                               [](const std::string& name) { return name == "deep"; });
  return turns(i + 1);
}

// Of the frames of a folded line, those of Chains, without class and line.
std::vector<std::string> chain_of(const std::string& line) {
  std::vector<std::string> chain;
  std::istringstream frames(line.substr(0, line.rfind(' ')));
  for (std::string frame; std::getline(frames, frame, ';');)
    if (frame.starts_with("Chains.") || frame.starts_with("Chains$2.go") || frame.starts_with("Chains$Box."))
      chain.push_back(frame.substr(frame.rfind('.') + 1));
  return chain;
}

void expect_possible_samples(const std::string& launcher, const std::string& option, const std::string& folder) {
  SCOPED_TRACE(launcher + " " + option);
  const std::string file = test::kHotSpotFolder + "/work.pb.gz";
  const auto recorded = run(WINDLASS_COMMAND " record -F 1999 -o " + file + " -- " + launcher + " " + option + " -cp " +
                            folder + " Chains work 3 2>&1");
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  std::size_t whole = 0, all = 0, at_work = 0, wrong = 0;
  std::string first_wrong;
  std::istringstream lines(run(WINDLASS_COMMAND " report --folded " + file).output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t count = std::stoul(line.substr(line.rfind(' ')));
    all += count;
    if (line.find("[truncated") != std::string::npos) continue;
    whole += count;
    const std::vector<std::string> chain = chain_of(line);
    if (chain.size() > 2) at_work += count;
    if (is_possible(chain)) continue;
    wrong += count;
    if (first_wrong.size() < 2000) first_wrong += line + "\n";
  }
  ::printf("%s %s: %zu of %zu whole, %zu at work, %zu wrong\n", launcher.c_str(), option.c_str(), whole, all, at_work,
           wrong);
  test::tested_version("HotSpot", test::version_of(launcher + " -version"), option, all, whole, wrong);
  EXPECT_EQ(wrong, 0U) << first_wrong;
  EXPECT_GT(at_work, 100U);
  EXPECT_GE(whole * 100, all * 99) << recorded.output;
}

TEST_F(HotSpot, SamplesHaveTheStacksThatThereCanBe) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::string& launcher : test::java_launchers())
    for (const char* option : {"-Xint", "-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation", "-Xshare:auto"})
      expect_possible_samples(launcher, option, test::kHotSpotFolder);
}

TEST_F(HotSpot, Jdk8And11AreReadLikeLaterOnes) {
  std::string why;
  const auto launchers = test::old_java_launchers(why);
  if (!why.empty()) GTEST_SKIP() << why;
  for (const std::string& launcher : launchers)
    for (const char* option : {"-Xint", "-Xshare:auto"}) {
      expect_what_the_runtime_prints(launcher, option, test::kOldFolder);
      if (test::no_privilege_to_sample().empty()) expect_possible_samples(launcher, option, test::kOldFolder);
    }
}

// Who has entered a virtual thread called nothing else.
void expect_entered(const std::vector<std::string>& frames) {
  const auto entry = std::ranges::find(frames, "jdk.internal.vm.Continuation.enterSpecial");
  if (entry == frames.end()) return;
  ASSERT_NE(entry, frames.begin());
  EXPECT_EQ(entry[-1], "jdk.internal.vm.Continuation.run");
}

// Is it in the stub that brings frames back from the heap, and is all of its code known?
bool brings_frames_back(const std::vector<std::string>& frames) {
  const auto run = std::ranges::find(frames, "jdk.internal.vm.Continuation.run");
  return run != frames.end() && std::next(run) != frames.end() &&
         std::next(run)->starts_with("[StubRoutines (continuation") &&
         std::ranges::find(frames, "[jit]") == frames.end();
}

// Records a program of virtual threads. `look` says which whole stacks are counted.
void expect_virtual(const std::string& launcher, const char* option, const std::string& program,
                    FunctionRef<bool(const test::FoldedStack&)> look) {
  const std::string folder = test::kHotSpotFolder + "/" + program, file = folder + ".pb.gz";
  const auto recorded = run(WINDLASS_COMMAND " record -F 1999 -o " + file + " -- " + launcher + " " + option + " -cp " +
                            folder + " " + program + " 4 2>&1");
  EXPECT_EQ(recorded.status, 0) << recorded.output;
  struct {
    std::size_t all = 0, whole = 0, counted = 0;
  } found;
  for (const test::FoldedStack& stack : test::folded(WINDLASS_COMMAND, file)) {
    found.all += stack.count;
    if (stack.whole) expect_entered(stack.frames);
    if (stack.whole) found.whole += stack.count;
    if (look(stack) && stack.whole) found.counted += stack.count;
  }
  ::printf("%s %s: %zu of %zu whole, %zu looked at\n", launcher.c_str(), option, found.whole, found.all, found.counted);
  EXPECT_GT(found.counted, 100U);
  EXPECT_GE(found.whole * 100, found.all * 97) << recorded.output;  // while frames are moved, some are not
}

void expect_tasks(const std::string& launcher, const char* option) {
  SCOPED_TRACE(launcher + " " + option);
  expect_virtual(launcher, option, "Tasks", [](const test::FoldedStack& stack) {
    EXPECT_TRUE(stack.whole || !brings_frames_back(stack.frames))
        << "its frame is where the virtual thread was entered";
    return std::ranges::find(stack.frames, "Tasks.spin") != stack.frames.end();
  });
}

// Where a virtual thread's frames end on its carrier's stack, the caller that entered it comes next.
void expect_frames_on_the_heap(const std::string& launcher, const char* option) {
  SCOPED_TRACE(launcher + " " + option);
  expect_virtual(launcher, option, "Virtual", [](const test::FoldedStack& stack) {
    const auto barrier = std::ranges::find(stack.frames, "[virtual thread: more frames on the heap]");
    if (!stack.whole || barrier == stack.frames.end()) return false;
    EXPECT_TRUE(barrier != stack.frames.begin() && barrier[-1] == "jdk.internal.vm.Continuation.run");
    return true;
  });
}

TEST_F(HotSpot, VirtualThreadsStandOnTheirCarriers) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (!test::make_virtual("Tasks") || !test::make_virtual("Virtual")) return;  // no compiler here knows them
  for (const std::string& launcher : test::virtual_launchers())
    for (const char* option : {"-Xint", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}) {
      expect_tasks(launcher, option);
      expect_frames_on_the_heap(launcher, option);
    }
}

// Its tables do not say where a virtual thread was entered.
TEST_F(HotSpot, VirtualThreadsOfJdk21StandOnTheirCarriers) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  if (!test::make_virtual("Tasks") || !test::make_virtual("Virtual")) return;
  std::string why;
  const std::string launcher = test::java_21_launcher(why);
  if (!why.empty()) GTEST_SKIP() << why;
  for (const char* option : {"-Xint", "-Xshare:auto"}) {
    expect_tasks(launcher, option);
    expect_frames_on_the_heap(launcher, option);
  }
}

}  // namespace
}  // namespace windlass
