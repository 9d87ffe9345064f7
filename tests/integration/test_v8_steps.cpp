// The main thread of node, one instruction at a time: at each of V8's builtins and of code that it has made the walker
// must say the caller that a shadow stack has.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "image/mapped_file.h"
#include "integration/v8/program.h"
#include "runtimes/v8/heap.h"
#include "runtimes/v8/image_facts.h"
#include "support/alarms.h"
#include "support/step_judge.h"
#include "support/whole.h"

namespace windlass {
namespace {

namespace v8 = runtimes::v8;
using test::StepJudge;

// Of the instructions that were not judged before: all callers that are known.
std::string compare_all(StepJudge& judge, const user_regs_struct& now) {
  const std::vector<StepJudge::Call>& calls = judge.calls_on(0);
  StackWalker walker(judge.target().space, test::registers_of(now));
  for (std::size_t i = calls.size(); i-- > 0;) {
    if (!walker.step()) return fmt::format("caller {}: {}", calls.size() - i, walker.error().text());
    if (walker.frame().pc().value() != calls[i].pc)
      return fmt::format("caller {}: pc {:#x}, not {:#x}", calls.size() - i, walker.frame().pc().value(), calls[i].pc);
  }
  return {};
}

void add_peers(StepJudge& judge, const std::string& program) {
  auto file = image::MappedFile::open(program);
  const auto facts = file ? v8::ImageFacts::read(file->bytes()) : std::unexpected(file.error());
  const auto layout = facts ? v8::Layout::make(*facts) : std::unexpected(facts.error());
  ASSERT_TRUE(layout);
  judge.add_peer("OTel's rule", [&judge, layout = *layout](const user_regs_struct& now) {
    return test::otel_v8(v8::Heap(judge.memory(), layout), now);
  });
}

void set_ways(StepJudge& judge) {
  judge.ways.also = [&judge, seen = std::size_t{0}](const user_regs_struct& now, const StepJudge::Call&) mutable {
    if (judge.instructions.size() == seen) return std::string();
    seen = judge.instructions.size();
    return compare_all(judge, now);
  };
  judge.ways.preserved = {6};  // rbp; all others are the caller's to save
  judge.ways.moves_return_address = true;
  const auto name = [&judge](std::uint64_t pc) {
    std::array<char, 256> room{};
    const walk::Module* module = judge.generated(pc);
    const auto found = module != nullptr ? module->name_at(pc, room) : Expected<std::string_view>("");
    return found ? std::string(*found) : std::string();
  };
  // The frames of optimised code become those of the interpreter; an exception is handled by a frame further up.
  judge.ways.remakes_stack = [name, &judge](const user_regs_struct& before, const user_regs_struct& now) {
    const std::string builtin = name(before.rip);
    return builtin.starts_with("Builtins_DeoptimizationEntry") ||
           (builtin.starts_with("Builtins_CEntry") && now.rsp > before.rsp && judge.makes_sp(before.rip));
  };
  judge.ways.place = [name, &judge](std::uint64_t pc) {
    const walk::Module* module = judge.generated(pc);
    const std::uint64_t begin = module != nullptr ? module->function_start(pc) : 0;
    return fmt::format(" [{}+{:#x}]", name(pc), pc - begin);
  };
  judge.ways.name = [&judge](const Frame& frame) {
    std::vector<source::NamedFunction> names;
    const std::uint64_t pc = frame.pc().value();
    const walk::Module* module = judge.generated(pc);
    return module != nullptr && module->functions_at(pc, frame.function, names) ? names.back().name : std::string();
  };
}

TEST(V8Steps, EveryInstructionHasItsCaller) {
  const std::vector<test::NodeRelease> releases = test::node_releases();
  if (releases.empty()) GTEST_SKIP() << "no node";
  for (const test::NodeRelease& release : releases) {
    int turn = 0;  // an ordinary run takes half of the ways of one release, the others of another
    if (!test::whole() && &release != &releases.front() && &release != &releases.back()) continue;
    for (const test::NodeWay& way : test::node_ways(release.major)) {
      if (!test::whole() && (turn++ + (&release == &releases.front() ? 0 : 1)) % 2 != 0) continue;
      SCOPED_TRACE(fmt::format("{} {}", release.program, way.name));
      const test::NodeProgram program(release.program, way, {"step", way.seconds});
      ASSERT_FALSE(program.printed().empty());
      ASSERT_TRUE(test::stop(program.pid()));
      StepJudge judge(program.pid());
      // The main thread may wait for another one, and for good (seen twice).
      const test::Alarms alarms(900'000);
      set_ways(judge);
      add_peers(judge, release.program);
      const std::size_t functions = test::whole() && !way.is_wasm() ? 40 : 10, judged = test::whole() ? 20'000 : 1'000;
      judge.run(test::whole() ? 200'000 : 30'000,
                [&] { return judge.methods.size() >= functions && judge.judged >= judged; });
      ::printf("node %d %s: %zu instructions judged, %zu different ones of %zu builtins and functions: %zu wrong\n",
               release.major, way.name, judge.judged, judge.instructions.size(), judge.methods.size(), judge.wrong);
      ::printf("%s", judge.peers_text().c_str());
      EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
      EXPECT_GE(judge.judged, judged);
      EXPECT_GE(judge.methods.size(), functions);
      ::kill(program.pid(), SIGKILL);
      ::waitpid(program.pid(), nullptr, __WALL);
    }
  }
}

}  // namespace
}  // namespace windlass
