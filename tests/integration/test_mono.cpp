// Stacks of Mono, from outside. The program mono/Chains.cs is compared with the stack trace that the runtime prints,
// sampled while it throws, single-stepped, and read while its memory lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtimes/find.h"
#include "runtimes/mono/find.h"
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

const std::string kFolder = WINDLASS_MONO_DIRECTORY;

class MonoStacks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = test::run("mcs -optimize -out:" + kFolder + "/Chains.exe " WINDLASS_MONO_SOURCES "/Chains.cs 2>&1");
  }
  void SetUp() override { ASSERT_EQ(made_.status, 0) << made_.output; }
  static std::vector<std::string> words(const std::string& what, const std::string& seconds) {
    return {"/usr/bin/mono", kFolder + "/Chains.exe", what, seconds};
  }
  static inline test::CommandResult made_;
};

// The managed frames from Bottom on; nested and generic types as the runtime has them.
std::vector<std::string> walk(pid_t pid, std::string& end) {
  std::istringstream lines(test::run(fmt::format(WINDLASS_COMMAND " walk --json {} 2>/dev/null", pid)).output);
  for (std::string line; std::getline(lines, line);) {
    const json thread = json::parse(line);
    std::vector<std::string> frames;
    for (const json& frame : thread["frames"]) {
      const std::string name = frame["function"].is_string() ? frame["function"].get<std::string>() : "";
      const bool is_code = !frame["module"].is_string() || frame["module"].get<std::string>().starts_with("[");
      if (is_code && (!frames.empty() || name == "Example.Chains.Bottom")) frames.push_back(name);
    }
    end = thread["end"];
    if (!frames.empty()) return frames;
  }
  return {};
}

TEST_F(MonoStacks, AreWhatTheRuntimePrints) {
  const test::RuntimeProgram program(words("chain", "0"), kFolder);
  std::vector<std::string> printed = program.printed();
  ASSERT_GE(printed.size(), 7U);
  std::string end;
  std::vector<std::string> frames = walk(program.pid(), end);
  EXPECT_EQ(end, "complete");
  // What calls Main, and calls of delegates: wrappers, which the runtime does not print.
  std::erase_if(frames, [](const std::string& name) {
    return name.find("runtime_invoke") != std::string::npos || name.find("invoke_") != std::string::npos;
  });
  for (std::string& name : printed)  // of generic types without their arguments
    if (const std::size_t arguments = name.find("[["); arguments != std::string::npos)
      name.erase(arguments, name.find("]]") + 2 - arguments);
  EXPECT_EQ(frames, printed);
}

TEST_F(MonoStacks, AreWholeWhileItThrows) {
  if (const std::string why = test::no_privilege_to_sample(); !why.empty()) GTEST_SKIP() << why;
  const test::RuntimeProgram program(words("work", "60"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const std::string profile = kFolder + "/work.pb.gz";
  const auto recorded = test::record_process(WINDLASS_COMMAND, program.pid(), profile);
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto stacks = test::folded(WINDLASS_COMMAND, profile);
  const test::WholeShare share = test::whole_share(stacks);
  ::printf("%.2f%% of %lu whole\n", share.percent(), share.all);
  EXPECT_GT(share.all, 20U) << recorded.output;
  EXPECT_GE(share.percent(), 99.0) << recorded.output;
  // Every way to Throw leads from Main by Caught, and by itself.
  std::uint64_t throwing = 0;
  for (const auto& stack : stacks) {
    const auto at = std::ranges::find(stack.frames, "Example.Chains.Throw");
    if (!stack.whole || at == stack.frames.end()) continue;
    throwing += stack.count;
    ASSERT_GE(at - stack.frames.begin(), 2);
    EXPECT_EQ(*(at - 1), "Example.Chains.Caught");
    EXPECT_EQ(*(at - 2), "Example.Chains.Main");
  }
  EXPECT_GT(throwing, 0U);
  test::tested_version("Mono", test::version_of("mono --version"), "throws", share.all, share.whole);
}

std::string name_at(StepJudge& judge, std::uint64_t pc) { return test::made_name(judge.generated(pc), pc); }

// How Mono's code calls.
void set_ways(StepJudge& judge) {
  judge.ways.name = [&](const Frame& frame) { return name_at(judge, frame.pc().value()); };
  judge.ways.place = [&](std::uint64_t pc) { return " [" + name_at(judge, pc) + "]"; };
  // To a handler of exceptions in the same method; from a trampoline of one method to the generic one.
  judge.ways.is_own_call = [&](std::uint64_t from, std::uint64_t to) {
    const walk::Module* module = judge.generated(to);
    const auto callee = module != nullptr ? module->function_at(to) : fail(ErrorCode::kNotFound, "no code", to);
    return callee && ((from >= callee->begin && from < callee->end && to != callee->begin) ||
                      name_at(judge, to).starts_with("[generic_trampoline"));
  };
}

TEST_F(MonoStacks, HaveTheirCallersAtEveryInstruction) {
  const test::RuntimeProgram program(words("work", "600"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  ASSERT_TRUE(test::stop(program.pid()));
  StepJudge judge(program.pid());
  set_ways(judge);
  // Code in no table, which puts back the registers of a handler's frame one by one, and never returns.
  judge.ways.judges = [&](std::uint64_t pc) { return !name_at(judge, pc).empty(); };
  judge.run(test::whole() ? 3'000'000 : 300'000, [&] { return judge.judged > 1'000 && judge.methods.size() > 5; });
  ::printf("%zu instructions judged, %zu different ones of %zu methods: %zu wrong\n", judge.judged,
           judge.instructions.size(), judge.methods.size(), judge.wrong);
  ::printf("%s", judge.peers_text().c_str());
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GT(judge.judged, 1'000U);
  EXPECT_GT(judge.methods.size(), 5U);
}

// Debian has mscorlib compiled ahead of time. Its call frame information has rows of epilogues in wrong places.
TEST_F(MonoStacks, HaveTheirCallersInCodeThatWasCompiledAheadOfTime) {
  const test::RuntimeProgram program(words("work", "600"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const auto maps = test::maps_of(program.pid());
  const auto image = std::ranges::find_if(
      maps, [](const auto& map) { return map.executable && map.path.ends_with("/mscorlib.dll.so"); });
  if (image == maps.end()) GTEST_SKIP() << "mscorlib is not compiled ahead of time";
  ASSERT_TRUE(test::stop(program.pid()));
  StepJudge judge(program.pid());
  set_ways(judge);
  judge.ways.judges = [&](std::uint64_t pc) { return pc >= image->begin && pc < image->end; };
  judge.ways.place = [&](std::uint64_t pc) {
    return fmt::format(" [mscorlib.dll.so+{:#x}]", pc - image->begin + image->offset);
  };
  judge.run(test::whole() ? 3'000'000 : 300'000, [&] { return judge.judged > 10'000 && judge.methods.size() > 10; });
  ::printf("%zu instructions judged, %zu different ones of %zu methods: %zu wrong\n", judge.judged,
           judge.instructions.size(), judge.methods.size(), judge.wrong);
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GT(judge.judged, 10'000U);
  EXPECT_GT(judge.methods.size(), 10U);
}

// Where some bits of what is read are others than there are, reading ends all the same.
TEST_F(MonoStacks, BearMemoryThatLies) {
  const test::RuntimeProgram program(words("chain", "0"), kFolder);
  ASSERT_FALSE(program.printed().empty());
  const auto memory = std::make_shared<test::FlippingMemory>(program.pid(), 0);
  const auto maps = test::maps_of(program.pid());
  const auto image = test::find_in_images(*memory, maps, runtimes::mono::find_exports);
  ASSERT_TRUE(image);
  for (const unsigned odds : {0U, 50U, 5U}) {
    const auto runtime = runtimes::mono::open(std::make_shared<test::FlippingMemory>(program.pid(), odds), *image);
    std::size_t found = 0;
    for (const auto& map : maps) {
      if (!map.executable || map.has_file()) continue;
      found += test::methods_of(*runtime, map.begin, map.end, 997);
    }
    EXPECT_TRUE(odds != 0 || found > 10) << found;
  }
}

}  // namespace
}  // namespace windlass
