// The main thread of a Java virtual machine, single-stepped. At each instruction of generated code the walker must give
// the caller of a shadow stack.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "integration/hotspot/program.h"
#include "runtimes/hotspot/code_map.h"
#include "runtimes/hotspot/find.h"
#include "runtimes/hotspot/vm_structs.h"
#include "support/find_in_images.h"
#include "support/module_names.h"
#include "support/step_judge.h"
#include "support/whole.h"

namespace windlass {
namespace {

namespace hotspot = runtimes::hotspot;
using hotspot::Blob;
using test::StepJudge;

// The ways in which control moves between compiled and interpreted methods.
class HotSpotWays {
 public:
  HotSpotWays(pid_t pid, StepJudge& judge) : judge_(judge) {
    const auto at = test::find_in_images(judge.memory(), test::maps_of(pid), hotspot::find_tables);
    const auto structs =
        at ? hotspot::VmStructs::read(judge.memory(), *at) : fail(ErrorCode::kNotFound, "no HotSpot in the process", 0);
    if (auto code = structs ? hotspot::CodeMap::make(*structs) : Failure(structs.error()))
      map_.emplace(std::move(*code));
    if (!map_) return;
    judge.add_peer("OTel's rule", test::OtelHotSpot(judge.memory(), *structs, *map_));
    judge.ways.preserved = {6, 15};  // rbp; r15, the thread; all others are the caller's to save
    judge.ways.entered = [this](const auto& before, const auto& now) { return entered(before, now); };
    judge.ways.may_have_popped = [this](std::uint64_t before, std::uint64_t now) {
      return blob(now).address != 0 && !blob(now).is_compiled() && blob(now).begin == blob(before).begin &&
             !judge_.jumps_anywhere(before);
    };
    // Linkers of method handles take the last argument off the stack; the callee's frame is built on what they leave,
    // and taken down again. Nothing returns from linkers, nor to where it is in a codelet. An exception leaves a frame
    // by a jump, within the codelet that handles exceptions.
    judge.ways.drops_arguments = [this](std::uint64_t before, std::uint64_t now) {
      const Blob& from = blob(before);
      return from.kind == Blob::Kind::kLinkers ||
             (from.kind == Blob::Kind::kCodelet && blob(now).begin == from.begin && !judge_.jumps_anywhere(before));
    };
    judge.ways.is_own_call = [this](std::uint64_t from, std::uint64_t to) {
      return blob(from).kind == Blob::Kind::kCodelet && blob(from).begin == blob(to).begin;
    };
    judge.ways.remakes_stack = [this](const auto&, const auto& now) {
      const std::string& name = blob(now.rip).name;
      return name.starts_with("DeoptimizationBlob") || name.starts_with("UncommonTrapBlob");
    };
    judge.ways.place = [this](std::uint64_t pc) {
      return fmt::format(" [{} {:#x}+{:#x}]", blob(pc).name, blob(pc).begin, pc - blob(pc).begin);
    };
    judge.ways.name = [this](const Frame& frame) {
      const std::uint64_t pc = frame.pc().value();
      return test::made_name(judge_.generated(pc), pc, frame.function);
    };
  }

  [[nodiscard]] bool ok() const { return map_.has_value(); }

 private:
  // Code comes and goes, but hardly while so few instructions run.
  const Blob& blob(std::uint64_t pc) {
    const auto [known, is_new] = blobs_.try_emplace(pc);
    if (!is_new) return known->second;
    if (auto found = map_->find(judge_.memory(), pc))
      known->second = std::move(*found);
    else if (auto jump = map_->find_archived(judge_.memory(), pc))
      known->second = std::move(*jump);
    return known->second;
  }

  static bool is_method_entry(const Blob& blob) {
    return blob.kind == Blob::Kind::kCodelet && blob.name.find("method entry point") != std::string::npos;
  }

  std::optional<StepJudge::Entered> entered(const user_regs_struct& before, const user_regs_struct& now) {
    if (now.rip - before.rip < 16) return moved(before, now);
    const Blob& to = blob(now.rip);
    const Blob& from = blob(before.rip);
    if (to.address == 0 || from.address == 0 || (to.address == from.address && to.begin == from.begin))
      return std::nullopt;
    if (is_method_entry(from) && is_method_entry(to)) return std::nullopt;  // through a jump in the class archive
    std::uint64_t top = 0;
    if (!judge_.memory().read(now.rsp, &top, sizeof top)) return std::nullopt;
    const bool from_adapter = from.kind == Blob::Kind::kAdapter || from.kind == Blob::Kind::kLinkers;
    StepJudge::Entered entry{{now.rsp, top, now.rsp + 8, test::registers_of(now)}, from_adapter};
    if (to.name == "ExceptionBlob") {
      entry.call.slot -= 8;
      entry.call.pc = now.rdx;
      entry.call.sp = now.rsp;
      return entry;
    }
    constexpr std::uint64_t kMostPadding = 64;  // between a codelet's header and its code
    if (is_method_entry(to) && now.rip - to.begin < kMostPadding) {
      entry.call.sp = now.r13;
      return entry;
    }
    if ((to.kind == Blob::Kind::kAdapter && (from.kind == Blob::Kind::kCodelet || from.kind == Blob::Kind::kLinkers)) ||
        (to.kind == Blob::Kind::kLinkers && from.kind == Blob::Kind::kCodelet) || (to.is_compiled() && from_adapter))
      return entry;
    return std::nullopt;
  }

  // An adapter that leads from interpreted into compiled code pushes the return address once more, below the arguments:
  // from there the method will return. One that leads the other way only puts it back.
  std::optional<StepJudge::Entered> moved(const user_regs_struct& before, const user_regs_struct& now) {
    const auto& calls = judge_.calls_on(0);
    std::uint64_t top = 0;
    if (now.rsp + 8 != before.rsp || judge_.makes_sp(before.rip) || calls.empty() ||
        blob(now.rip).kind != Blob::Kind::kAdapter || blob(calls.back().before.pc().value()).is_compiled() ||
        !judge_.memory().read(now.rsp, &top, sizeof top) || top != calls.back().pc)
      return std::nullopt;
    return StepJudge::Entered{{now.rsp, top, now.rsp + 8, calls.back().before}, true};
  }

  StepJudge& judge_;
  std::optional<hotspot::CodeMap> map_;
  std::map<std::uint64_t, Blob> blobs_;
};

// The launcher runs main() in a second thread.
pid_t main_thread(pid_t pid) {
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid)))
    threads.push_back(std::stoi(entry.path().filename().string()));
  std::ranges::sort(threads);
  return threads.size() < 2 ? 0 : threads[1];
}

struct Way {
  const char* name;
  const char* option;
  const char* seconds;    // that it runs before
  std::size_t functions;  // met at least in a whole run
  const char* program = "Chains";
  const char* work = "step";
};

void expect_callers(const std::string& launcher, const std::vector<std::string>& options, const Way& way,
                    const std::string& folder) {
  SCOPED_TRACE(launcher);
  const test::JavaProgram program(launcher, options, {way.work, way.seconds}, way.program, folder);
  ASSERT_FALSE(program.printed().empty());
  const pid_t thread = main_thread(program.pid());
  ASSERT_TRUE(test::stop(thread));
  StepJudge judge(thread);
  const HotSpotWays ways(program.pid(), judge);
  ASSERT_TRUE(ways.ok());
  const std::size_t functions = test::whole() ? way.functions : 5;
  judge.run(WINDLASS_STEPS * (test::whole() ? 20 : 1),
            [&] { return judge.names.size() >= functions && judge.judged > 10'000; });
  ::printf("%s: %zu instructions judged, %zu different ones of %zu stretches of code and %zu methods: %zu wrong\n",
           launcher.c_str(), judge.judged, judge.instructions.size(), judge.methods.size(), judge.names.size(),
           judge.wrong);
  ::printf("%s", judge.peers_text().c_str());
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GE(judge.names.size(), functions);
  EXPECT_GT(judge.judged, 10'000U);
  ::kill(program.pid(), SIGKILL);
  ::waitpid(thread, nullptr, __WALL);
}

class HotSpotSteps : public ::testing::TestWithParam<Way> {};

TEST_P(HotSpotSteps, EveryInstructionOfJavaHasItsCaller) {
  const bool adapters = GetParam().program == std::string("Adapters");
  const std::string why = adapters ? test::make_adapters(test::whole() ? 150 : 60, 1) : test::make_chains();
  if (!why.empty()) GTEST_SKIP() << why;
  std::vector<std::string> options = {GetParam().option};
  if (adapters) options.insert(options.end(), test::kAdapterOptions.begin(), test::kAdapterOptions.end());
  for (const std::string& launcher : test::java_launchers())
    expect_callers(launcher, options, GetParam(), test::kHotSpotFolder);
}

TEST(OldHotSpotSteps, EveryInstructionOfJdk8And11HasItsCaller) {
  std::string why;
  const auto launchers = test::old_java_launchers(why);
  if (!why.empty()) GTEST_SKIP() << why;
  for (const std::string& launcher : launchers)
    for (const Way& way : {Way{"interpreted", "-Xint", "0.1", 30}, Way{"tiers", "-Xshare:auto", "0.5", 15}})
      expect_callers(launcher, {way.option}, way, test::kOldFolder);
}

INSTANTIATE_TEST_SUITE_P(Ways, HotSpotSteps,
                         ::testing::Values(Way{"interpreted", "-Xint", "0.1", 100},
                                           Way{"c1", "-XX:TieredStopAtLevel=1", "2", 50},
                                           Way{"c2", "-XX:-TieredCompilation", "4", 15},
                                           Way{"tiers", "-Xshare:auto", "0.5", 15},
                                           Way{"shenandoah", "-XX:+UseShenandoahGC", "0.1", 15},
                                           Way{"interpreted_throwing", "-Xint", "0.1", 5, "Chains", "throw"},
                                           Way{"c1_throwing", "-XX:TieredStopAtLevel=1", "1", 5, "Chains", "throw"},
                                           Way{"c1_adapters", "-XX:TieredStopAtLevel=1", "3", 100, "Adapters"},
                                           Way{"c2_adapters", "-XX:-TieredCompilation", "6", 50, "Adapters"}),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace windlass
