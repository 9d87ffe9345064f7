// A thread of a real CoreCLR, one instruction at a time: at each of managed code the walker must say the caller that a
// shadow stack has, which is kept by the calls that were executed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "integration/coreclr/program.h"
#include "runtimes/coreclr/find.h"
#include "support/coreclr_walk.h"
#include "support/find_in_images.h"
#include "support/step_judge.h"

namespace windlass {
namespace {

using test::run;

using test::StepJudge;

// The same frames as the iterator over managed stacks has them, executing a method's unwind information. Stubs are no
// methods.
class ByIterator {
 public:
  ByIterator(pid_t pid, StepJudge& judge) : judge_(judge) {
    const auto at = test::find_in_images(judge.memory(), test::maps_of(pid), runtimes::coreclr::find_descriptor);
    const auto descriptor = at ? runtimes::coreclr::Descriptor::read(judge.memory(), *at)
                               : fail(ErrorCode::kNotFound, "no CoreCLR in the process", 0);
    if (auto code = descriptor ? runtimes::coreclr::CodeMap::make(*descriptor) : Failure(descriptor.error())) {
      map_ = std::make_unique<runtimes::coreclr::CodeMap>(*code);
      judge.add_peer("OTel's rule",
                     [this](const user_regs_struct& now) { return test::otel_coreclr(judge_.memory(), *map_, now); });
      runtime_ = std::make_unique<test::CoreClrRuntime>(judge.memory(), *map_);
    }
    judge.ways.also = [this](const user_regs_struct& now, const StepJudge::Call& call) { return iterate(now, call); };
  }

  std::size_t iterated = 0;

 private:
  std::string iterate(const user_regs_struct& now, const StepJudge::Call& call) {
    if (!runtime_ || runtime_->find(now.rip) == nullptr) return "";
    ++iterated;
    const managed::ManagedThread thread{.space = &judge_.target().space, .runtime = runtime_.get()};
    managed::ManagedWalker walker(thread, test::registers_of(now),
                                  managed::kThreadIsSuspended | managed::kNotifyOnUnmanagedToManaged);
    if (!walker.next() || !walker.next())
      return walker.error() ? walker.error()->text() : "the iterator shows no caller";
    const Registers& caller = walker.frame().registers;
    if (caller.pc().value() != call.pc || caller.sp() != call.sp)
      return fmt::format("iterator: pc {:#x} sp {:#x}, not {:#x} {:#x}", caller.pc().value(), caller.sp(), call.pc,
                         call.sp);
    for (const RegisterNumber reg : judge_.ways.preserved)
      if (caller.has(reg) && caller.get(reg) != call.before.get(reg))
        return fmt::format("iterator: register {}: {:#x}, not {:#x}", reg, caller.get(reg), call.before.get(reg));
    return "";
  }

  StepJudge& judge_;
  std::unique_ptr<runtimes::coreclr::CodeMap> map_;
  std::unique_ptr<test::CoreClrRuntime> runtime_;
};

// How the runtime compiles, as an environment variable, and how many methods are stepped through at least.
struct Way {
  const char* name;
  const char* variable;
  const char* value;
  std::size_t methods;
};

class CoreClrSteps : public ::testing::TestWithParam<Way> {};

TEST_P(CoreClrSteps, EveryInstructionOfManagedCodeHasItsCaller) {
  if (const std::string why = test::make_coreclr_program("methods"); !why.empty()) GTEST_SKIP() << why;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setenv(GetParam().variable, GetParam().value, 1);
    const std::string program = test::kCoreClrFolder + "/methods";
    ::execl(program.c_str(), program.c_str(), nullptr);
    ::_exit(1);
  }
  ASSERT_GT(pid, 0);
  // Its methods have been compiled by then.
  const auto is_steady = [&] {
    return run(WINDLASS_COMMAND " walk -p " + std::to_string(pid) + " 2>&1").output.find("Chains.Methods.Steady()") !=
           std::string::npos;
  };
  while (!is_steady()) {
    ASSERT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "the program has ended";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_TRUE(test::stop(pid));
  {
    StepJudge judge(pid);
    const ByIterator iterator(pid, judge);
    // A thread that stands in the runtime's own code, compiling say, may stay there for a long time.
    judge.run(WINDLASS_STEPS, [&] { return judge.methods.size() >= GetParam().methods; });
    ::printf("%zu instructions judged (%zu by the iterator), %zu different ones of %zu methods and stubs: %zu wrong\n",
             judge.judged, iterator.iterated, judge.instructions.size(), judge.methods.size(), judge.wrong);
    ::printf("%s", judge.peers_text().c_str());
    EXPECT_GT(iterator.iterated, judge.judged / 2);
    EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
    EXPECT_GE(judge.methods.size(), GetParam().methods);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, __WALL);
}

// In tiers, as it does by itself; all of it as it comes first, which inlines nothing; all of it optimised.
INSTANTIATE_TEST_SUITE_P(Ways, CoreClrSteps,
                         ::testing::Values(Way{"tiers", "DOTNET_TieredCompilation", "1", 50},
                                           Way{"first_tier", "DOTNET_TC_CallCounting", "0", 200},
                                           Way{"optimised", "DOTNET_TieredCompilation", "0", 80}),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace windlass
