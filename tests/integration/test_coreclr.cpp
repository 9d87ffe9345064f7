// Stacks of .NET's CoreCLR, from outside, against what the runtime itself prints of them: C# of our own
// (coreclr/chains.cs) on a real runtime, npm's @azure/mcp-linux-x64, fetched by name, version and hash.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "integration/coreclr/program.h"
#include "os/proc_maps.h"
#include "os/process_memory.h"
#include "runtimes/coreclr/descriptor.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/coreclr/frames.h"
#include "support/core_of.h"
#include "support/find_in_images.h"
#include "support/flipping_memory.h"
#include "support/privilege.h"
#include "support/run_command.h"
#include "support/tested_version.h"
#include "windlass/target.h"

#include <nlohmann/json.hpp>

namespace windlass {
namespace {

using nlohmann::json;
using test::run;
namespace coreclr = runtimes::coreclr;

// ---- the program ----------------------------------------------------------------------------------------------------

const std::string& kFolder = test::kCoreClrFolder;
const std::string kProgram = kFolder + "/chains";

class Program : public test::CoreClrChains {
 public:
  explicit Program(const std::string& what) : CoreClrChains(what, what) {}
  Program(const test::MachinesNet& net, const std::string& what) : CoreClrChains(net, what) {}
};

// ---- what is walked -------------------------------------------------------------------------------------------------

struct WalkedFrame {
  std::uint64_t pc = 0, sp = 0;
  std::string module, function, certainty;
  // Of C#: the others have no name, or one of C.
  [[nodiscard]] bool is_managed() const { return module.find("doublemapper") != std::string::npos; }
};
struct WalkedThread {
  std::uint64_t id = 0;
  std::string end;
  std::vector<WalkedFrame> frames;
  [[nodiscard]] bool has(const std::string& function) const {
    return std::ranges::find(frames, function, &WalkedFrame::function) != frames.end();
  }
};

std::vector<WalkedThread> walk(const std::string& what) {
  std::vector<WalkedThread> threads;
  std::istringstream lines(run(WINDLASS_COMMAND " walk --json " + what + " 2>/dev/null").output);
  for (std::string line; std::getline(lines, line);) {
    const json read = json::parse(line);
    WalkedThread thread{read["thread"], read["end"], {}};
    for (const json& frame : read["frames"])
      thread.frames.push_back({frame["pc"], frame["sp"], frame["module"].is_null() ? "" : frame["module"],
                               frame["function"].is_null() ? "" : frame["function"], frame["certainty"]});
    threads.push_back(std::move(thread));
  }
  return threads;
}

std::vector<WalkedThread> walk(pid_t pid) { return walk("-p " + std::to_string(pid)); }

const std::string kBottom = "Chains.Bottom.Sleep(Int32)";

// The thread whose stack it is, once it has come to the bottom; nothing if it never does.
std::optional<WalkedThread> walk_at_bottom(pid_t pid) {
  for (;;) {
    for (WalkedThread& thread : walk(pid))
      if (thread.has(kBottom) && thread.has("System.Threading.Thread.Sleep(Int32)")) return std::move(thread);
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
      return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// From the bottom up, what is managed.
std::vector<std::string> managed_of(const WalkedThread& thread) {
  std::vector<std::string> names;
  for (const WalkedFrame& frame : thread.frames)
    if (frame.is_managed()) names.push_back(frame.function);
  names.erase(names.begin(), std::ranges::find(names, kBottom));
  return names;
}

class CoreClr : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { why_not_ = test::make_coreclr_program("chains"); }
  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
  }
  static inline std::string why_not_;  // NOLINT
};

std::optional<std::uint64_t> descriptor_of(const Memory& memory, const std::vector<os::ProcMap>& maps) {
  return test::find_in_images(memory, maps, coreclr::find_descriptor);
}

// ---- tests ----------------------------------------------------------------------------------------------------------

// `also` comes behind the last frame called `behind`: what is on the stack, and the runtime does not print.
void expect_same_stack_of(Program& program, const std::string& behind = "", const std::vector<std::string>& also = {}) {
  const auto thread = walk_at_bottom(program.pid());
  ASSERT_TRUE(thread.has_value());
  EXPECT_EQ(thread->end, "complete");
  for (const WalkedFrame& frame : thread->frames) EXPECT_NE(frame.certainty, "guessed") << frame.function;
  std::vector<std::string> expected = program.printed_stack();
  ASSERT_GT(expected.size(), 8U);
  EXPECT_EQ(expected.front(), kBottom);
  if (!also.empty()) {
    const auto at = std::ranges::find(expected, behind);
    ASSERT_NE(at, expected.end());
    expected.insert(std::next(at), also.begin(), also.end());
  }
  EXPECT_EQ(managed_of(*thread), expected);
}

void expect_same_stack(const std::string& what, const std::string& behind = "",
                       const std::vector<std::string>& also = {}) {
  SCOPED_TRACE(what);
  Program program(what);
  expect_same_stack_of(program, behind, also);
}

TEST_F(CoreClr, StacksAreWhatTheRuntimePrints) {
  expect_same_stack("plain");
  expect_same_stack("value");
}

// A finally handler is a function of its own; the runtime prints it, too.
TEST_F(CoreClr, HandlersAreTheirMethods) { expect_same_stack("finally"); }

// The method that threw is still on the stack while the handler runs, and so is the one whose handler it is.
TEST_F(CoreClr, ACatchHandlerStandsOnWhatThrew) {
  expect_same_stack("catch", "Chains.Chain.InCatch(IStep)",
                    {"Chains.Chain.Throws(IStep)", "Chains.Chain.InCatch(IStep)"});
}

// CoreLib marks two of its methods as not to be printed.
TEST_F(CoreClr, ThreadsOfItsOwn) {
  expect_same_stack("thread", "Chains.Chain.OnThread()",
                    {"System.Threading.Thread.StartHelper.RunWorker()", "System.Threading.Thread.StartHelper.Run()"});
}

TEST(InstalledCoreClr, StacksOfNet8AreWhatItPrints) {
  test::MachinesNet net;
  if (const std::string why = test::make_program_on_machines_net("chains", 8, net); !why.empty()) GTEST_SKIP() << why;
  const auto expect_same = [&](const std::string& what, const std::string& behind = "",
                               const std::vector<std::string>& also = {}) {
    SCOPED_TRACE(what);
    Program program(net, what);
    expect_same_stack_of(program, behind, also);
  };
  expect_same("plain");
  expect_same("value");
  // It prints a finally handler and its method as one.
  expect_same("finally", "Chains.Chain.InFinally(IStep)", {"Chains.Chain.InFinally(IStep)"});
  expect_same("catch", "Chains.Chain.InCatch(IStep)", {"Chains.Chain.Throws(IStep)", "Chains.Chain.InCatch(IStep)"});
  expect_same("thread", "Chains.Chain.OnThread()",
              {"System.Threading.Thread.StartHelper.RunWorker()", "System.Threading.Thread.StartHelper.Run()"});
}

TEST_F(CoreClr, ACoreHasTheSameStack) {
  const Program program("plain");
  const auto live = walk_at_bottom(program.pid());
  ASSERT_TRUE(live.has_value());
  const test::CoreOf core(program.pid(), kFolder + "/core");
  if (!core.why_not().empty()) GTEST_SKIP() << core.why_not();
  const auto threads = walk("--core " + core.path());
  const auto dead = std::ranges::find(threads, live->id, &WalkedThread::id);
  ASSERT_NE(dead, threads.end());
  EXPECT_EQ(dead->end, "complete");
  EXPECT_EQ(managed_of(*dead), managed_of(*live));
}

// Where managed code was left is in the runtime's list of explicit frames, too.
TEST_F(CoreClr, ExplicitFramesSayWhereManagedCodeWasLeft) {
  const Program program("plain");
  const auto thread = walk_at_bottom(program.pid());
  ASSERT_TRUE(thread.has_value());
  const os::MemoryFile memory(program.pid());
  const auto at = descriptor_of(memory, test::maps_of(program.pid()));
  ASSERT_TRUE(at.has_value());
  const auto descriptor = coreclr::Descriptor::read(memory, *at);
  ASSERT_TRUE(descriptor.has_value()) << descriptor.error().text();
  const auto reader = coreclr::ExplicitFrames::make(*descriptor);
  ASSERT_TRUE(reader.has_value()) << reader.error().text();
  const auto threads = reader->read(memory);
  ASSERT_TRUE(threads.has_value()) << threads.error().text();
  const auto ours = std::ranges::find(*threads, thread->id, &coreclr::ThreadFrames::id);
  ASSERT_NE(ours, threads->end());
  EXPECT_FALSE(ours->error.has_value());
  ASSERT_FALSE(ours->frames.empty());
  const auto& innermost = ours->frames.front();
  EXPECT_EQ(innermost.kind, "InlinedCallFrame");
  ASSERT_TRUE(innermost.call.has_value());
  const auto left = std::ranges::find(thread->frames, innermost.call->pc, &WalkedFrame::pc);
  ASSERT_NE(left, thread->frames.end());
  EXPECT_EQ(left->function, "System.Threading.Thread.Sleep(Int32)");
  EXPECT_EQ(left->sp, innermost.call->sp);
  for (const auto& frame : ours->frames) EXPECT_FALSE(frame.kind.empty()) << frame.identifier;
}

// The runtime compiles and moves on while it is read, and what is read may be anything.
TEST_F(CoreClr, ReadingWhileItRunsEnds) {
  const Program program("busy");
  while (!std::ranges::any_of(walk(program.pid()), [](const auto& t) { return t.has("Chains.Busy.Start(Int32)"); }))
    ASSERT_EQ(::kill(program.pid(), 0), 0);
  const auto maps = test::maps_of(program.pid());
  for (const unsigned odds : {0U, 20U, 200U}) {
    const auto memory = std::make_shared<test::FlippingMemory>(program.pid(), odds);
    const auto at = descriptor_of(test::FlippingMemory(program.pid(), 0), maps);
    ASSERT_TRUE(at.has_value());
    std::size_t found = 0, asked = 0;
    for (int round = 0; round < 20 || found == 0; ++round) {
      ASSERT_LT(round, 2000);
      const auto runtime = coreclr::open(memory, {.descriptor = *at});
      for (const os::ProcMap& map : maps) {
        if (!map.executable || !map.path.starts_with("/memfd:")) continue;
        for (std::uint64_t pc = map.begin + static_cast<std::uint64_t>(round) % 61; pc < map.end; pc += 997) {
          ++asked;
          const auto method = runtime->method_at(pc);
          if (!method) continue;
          ++found;
          FrameRow row;
          (void)(*method)->row_at(pc, row);
          (void)runtime->is_still(**method);
        }
      }
      const auto descriptor = coreclr::Descriptor::read(*memory, *at);
      const auto frames = descriptor ? coreclr::ExplicitFrames::make(*descriptor)
                                     : Expected<coreclr::ExplicitFrames>(Failure(descriptor.error()));
      if (frames) (void)frames->read(*memory);
    }
    EXPECT_GT(found, asked / 100) << odds;
  }
}

// Every stack of a sample is one that there can be: none lacks a frame, none has one too many.
TEST_F(CoreClr, SamplesHaveWholeStacksWithNames) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string file = kFolder + "/busy.pb.gz";
  const auto recorded =
      run(WINDLASS_COMMAND " record -F 1999 -o " + file + " -- " + kProgram + " busy 2>&1 >" + kFolder + "/busy.out");
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto folded = run(WINDLASS_COMMAND " report --folded " + file);
  std::size_t samples = 0, at_work = 0;
  std::istringstream lines(folded.output);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> ours;
    std::istringstream frames(line.substr(0, line.rfind(' ')));
    for (std::string frame; std::getline(frames, frame, ';');)
      if (frame.starts_with("Chains.")) ours.push_back(frame.substr(0, frame.find('(')));
    if (std::ranges::find(ours, "Chains.Busy.Level") == ours.end() &&
        std::ranges::find(ours, "Chains.Busy.Work") == ours.end())
      continue;
    const std::size_t count = std::stoul(line.substr(line.rfind(' ')));
    samples += count;
    std::vector<std::string> expected = {"Chains.Chain.Main", "Chains.Busy.Start"};
    const auto levels = static_cast<std::size_t>(std::ranges::count(ours, "Chains.Busy.Level"));
    EXPECT_LE(levels, 6U) << line;
    expected.insert(expected.end(), levels, "Chains.Busy.Level");
    if (ours.size() > expected.size()) {
      EXPECT_EQ(levels, 6U) << line;
      const bool other = ours[expected.size()] == "Chains.Other.Chains.IStep.Go";
      expected.emplace_back(other ? "Chains.Other.Chains.IStep.Go" : "Chains.Busy.Go");
      if (ours.size() > expected.size()) expected.emplace_back("Chains.Busy.Work"), at_work += count;
    }
    EXPECT_EQ(ours, expected) << line;
    EXPECT_EQ(line.find("[truncated"), std::string::npos) << line;
  }
  EXPECT_GT(samples, 20U) << recorded.output << folded.output;
  EXPECT_GT(at_work, 0U);
  const std::string version =
      test::version_of("grep -aoE 'Runtime[.]linux-x64/[0-9.]+' " + kFolder + "/azure-mcp/dist/azmcp");
  test::tested_version(".NET (CoreCLR)", version, "busy", samples, samples, 0);  // as was expected above
}

}  // namespace
}  // namespace windlass
