// Stacks of Erlang's virtual machine, from outside. The program beam/chains.erl is compared with the stack trace that
// the virtual machine prints, sampled, single-stepped, and read while its memory lies.
#include <gtest/gtest.h>
#include <sys/ptrace.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtimes/beam/find.h"
#include "runtimes/find.h"
#include "support/find_in_images.h"
#include "support/flipping_memory.h"
#include "support/methods_of.h"
#include "support/module_names.h"
#include "support/privilege.h"
#include "support/runtime_program.h"
#include "support/step_judge.h"
#include "support/tested_version.h"
#include "support/whole.h"

namespace windlass {
namespace {

using nlohmann::json;
using test::StepJudge;

const std::string kFolder = WINDLASS_BEAM_DIRECTORY;

class ErlangStacks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = test::run("erlc -o " + kFolder + " " WINDLASS_BEAM_SOURCES "/chains.erl 2>&1");
  }
  void SetUp() override { ASSERT_EQ(made_.status, 0) << made_.output; }
  // One scheduler, so that it is known which thread runs the processes. No input: the scheduler would read it between.
  static std::vector<std::string> words(const std::string& what, const std::string& seconds = "0") {
    return {"/usr/bin/erl", "+S", "1", "-noinput", "-pa", kFolder, "-s", "chains", "main", what, seconds};
  }
  static inline test::CommandResult made_;
};

bool is_first_scheduler(const std::string& thread) { return thread == "1_scheduler" || thread == "erts_sched_1"; }

pid_t scheduler_of(pid_t pid) {
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    std::ifstream file(entry.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (is_first_scheduler(name)) return std::stoi(entry.path().filename().string());
  }
  return 0;
}

// Below hold/2, which stays: what the virtual machine printed of bottom/1 and its callers.
std::vector<std::string> callers_of_hold(std::vector<std::string> frames) {
  const auto hold = std::ranges::find(frames, "chains:hold/2");
  frames.erase(frames.begin(), hold == frames.end() ? hold : hold + 1);
  std::erase_if(frames, [](const std::string& name) { return name.starts_with("["); });
  return frames;
}

TEST_F(ErlangStacks, AreWhatTheVirtualMachinePrints) {
  const test::RuntimeProgram program(words("chain"), kFolder);
  const std::vector<std::string> printed = program.printed();
  ASSERT_GE(printed.size(), 5U);  // callers at the same place are printed once
  // Now and then no process runs, but the scheduler.
  std::set<std::string> leaves;
  std::map<std::string, int> others;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  while (leaves.size() < 3 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::istringstream lines(
        test::run(fmt::format(WINDLASS_COMMAND " walk --json {} 2>/dev/null", program.pid())).output);
    for (std::string line; std::getline(lines, line);) {
      const json thread = json::parse(line);
      std::vector<std::string> frames;
      for (const json& frame : thread["frames"])
        frames.push_back(frame["function"].is_string() ? frame["function"].get<std::string>() : "");
      const std::vector<std::string> callers = callers_of_hold(frames);
      if (callers.empty()) {
        if (is_first_scheduler(thread["name"])) ++others[line];
        continue;
      }
      // The virtual machine's own code, of which nothing is known, has a guess for its caller.
      if (!frames.front().empty() || thread["end"] != "a frame is a guess") {
        EXPECT_EQ(thread["end"], "complete") << line;
      }
      EXPECT_EQ(callers, printed) << line;
      leaves.insert(frames.front());
    }
  }
  EXPECT_FALSE(leaves.empty()) << ::testing::PrintToString(others);
}

TEST_F(ErlangStacks, AreWholeWhenSampled) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  auto working = std::make_unique<test::RuntimeProgram>(words("work", "60"), kFolder);
  ASSERT_FALSE(working->printed().empty());
  const std::string profile = kFolder + "/work.pb.gz";
  const auto record = [&](pid_t pid) { return test::record_process(WINDLASS_COMMAND, pid, profile); };
  auto recorded = record(working->pid());
  working.reset();  // what it has printed goes with it
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const test::WholeShare share = test::whole_share(test::folded(WINDLASS_COMMAND, profile));
  ::printf("%.2f%% of %lu whole\n", share.percent(), share.all);
  EXPECT_GT(share.all, 20U) << recorded.output;
  EXPECT_GE(share.percent(), 98.0) << recorded.output;

  const test::RuntimeProgram chain(words("chain"), kFolder);
  const std::vector<std::string> printed = chain.printed();
  ASSERT_GE(printed.size(), 5U);
  recorded = record(chain.pid());
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  std::uint64_t seen = 0, in_c = 0, wrong = 0;
  for (const auto& stack : test::folded(WINDLASS_COMMAND, profile)) {
    std::vector<std::string> innermost_first(stack.frames.rbegin(), stack.frames.rend());
    if (!stack.whole || std::ranges::find(innermost_first, "chains:hold/2") == innermost_first.end()) continue;
    std::vector<std::string> callers = callers_of_hold(innermost_first);
    callers.resize(std::min(callers.size(), printed.size()));
    seen += stack.count;
    in_c += std::ranges::find(innermost_first, "erts_md5_update") != innermost_first.end() ||
                    innermost_first.front().find("MD5") != std::string::npos ||
                    std::ranges::find(innermost_first, "[BEAM]") != innermost_first.end()
                ? stack.count
                : 0;
    wrong += callers != printed ? stack.count : 0;
  }
  ::printf("%lu of the chain, %lu of them in C\n", seen, in_c);
  EXPECT_GT(seen, 20U) << recorded.output;
  EXPECT_GT(in_c, 0U);
  EXPECT_EQ(wrong, 0U);
  test::tested_version("Erlang (BEAM)", test::version_of("cat /usr/lib/erlang/releases/*/OTP_VERSION"), "work",
                       share.all, share.whole, wrong);
}

// What the judge has to know of a thread with two stacks.
class TwoStacks {
 public:
  explicit TwoStacks(StepJudge& judge) : judge_(judge) {
    judge.ways.preserved = {3, 13};  // rbx, the scheduler's; r13, the process. All others are the caller's to save
    judge.ways.is_aside = [this](const user_regs_struct& before, const user_regs_struct& now) {
      return is_aside(before, now);
    };
    judge.ways.remakes_stack = [this](const auto&, const auto&) { return std::exchange(moved_, false); };
  }

  // C that has run may have moved the process's stack, with all that is known of its calls.
  [[nodiscard]] bool may_have_moved() const { return aside_ && ran_c_; }

 private:
  // On the scheduler's: no call of Erlang's comes or goes there. Where another process goes on, or this one's stack has
  // been moved (its heap has grown), nothing is known of it.
  bool is_aside(const user_regs_struct& before, const user_regs_struct& now) {
    constexpr std::uint64_t kThreadStack = 1U << 20;  // below the thread's control block
    const bool aside = now.fs_base - now.rsp < kThreadStack;
    if (aside && !aside_) left_ = before.rsp, ran_c_ = false;
    if (!aside && aside_) moved_ = now.rsp != left_;
    ran_c_ |= judge_.generated(now.rip) == nullptr;
    aside_ = aside;
    return aside;
  }

  StepJudge& judge_;
  bool aside_ = false, moved_ = false, ran_c_ = true;
  std::uint64_t left_ = 0;
};

TEST_F(ErlangStacks, HaveTheirCallersAtEveryInstruction) {
  const test::RuntimeProgram program(words("steps"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const pid_t thread = scheduler_of(program.pid());
  ASSERT_NE(thread, 0);
  ASSERT_TRUE(test::stop(thread));
  StepJudge judge(thread);
  const auto name_at = [&](std::uint64_t pc) { return test::made_name(judge.generated(pc), pc); };
  judge.ways.name = [&](const Frame& frame) { return name_at(frame.pc().value()); };
  judge.ways.place = [&](std::uint64_t pc) { return " [" + name_at(pc) + "]"; };
  const TwoStacks ways(judge);
  const auto image = test::find_in_images(judge.memory(), test::maps_of(program.pid()), runtimes::beam::find_exports);
  ASSERT_TRUE(image);
  const auto layout = runtimes::beam::Layout::read(judge.memory(), *image);
  ASSERT_TRUE(layout);
  judge.add_peer("OTel's rule", [&judge, map = runtimes::beam::CodeMap(*layout)](const user_regs_struct& now) {
    return test::otel_beam(judge.memory(), map, now);
  });
  // Not a scheduler between two processes, whose stack it shows; where nothing is known, stacks end with the reason.
  std::size_t unknown = 0;
  judge.ways.judges = [&](std::uint64_t pc) {
    if (judge.generated(pc) == nullptr) return false;
    const std::string name = name_at(pc);
    unknown += name.empty() ? 1 : 0;
    return !name.empty() && name != "[scheduler]" && !ways.may_have_moved();
  };
  // Most steps may be C's.
  const std::size_t most = test::whole() ? 20'000'000 : 400'000, enough = test::whole() ? 1'000'000 : 100'000;
  for (std::size_t steps = 0; steps < most && judge.judged < enough && judge.step(); ++steps) {}
  (void)::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);  // else the program cannot be waited for when it is killed
  ::printf("%zu instructions judged, %zu different ones of %zu functions: %zu wrong, %zu unknown\n", judge.judged,
           judge.instructions.size(), judge.names.size(), judge.wrong, unknown);
  ::printf("%s", judge.peers_text().c_str());
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_LT(unknown * 50, judge.judged);  // where processes are switched
  EXPECT_GT(judge.judged, 1'000U);
  EXPECT_GT(judge.names.size(), 1U);  // which ones is chance
}

TEST_F(ErlangStacks, BearMemoryThatLies) {
  const test::RuntimeProgram program(words("chain"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const auto maps = test::maps_of(program.pid());
  const auto memory = std::make_shared<test::FlippingMemory>(program.pid(), 0);
  const auto image = test::find_in_images(*memory, maps, runtimes::beam::find_exports);
  ASSERT_TRUE(image);
  for (const unsigned odds : {0U, 50U, 5U}) {
    const auto runtime = runtimes::beam::open(std::make_shared<test::FlippingMemory>(program.pid(), odds), *image);
    std::size_t found = 0;
    for (const auto& map : maps) {
      if (!map.executable || !map.path.starts_with("/memfd:")) continue;
      found += test::methods_of(*runtime, map.begin, map.begin + (2U << 20), 4999);
    }
    EXPECT_TRUE(odds != 0 || found > 10) << found;
  }
}

}  // namespace
}  // namespace windlass
