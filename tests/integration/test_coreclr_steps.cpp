// A thread of a real CoreCLR, single-stepped. At each instruction of managed code the walker must give the caller of a
// shadow stack, which is kept by the calls that were executed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "integration/coreclr/program.h"
#include "runtimes/coreclr/find.h"
#include "support/coreclr_walk.h"
#include "support/find_in_images.h"
#include "support/step_judge.h"
#include "windlass_user_env.h"

#include "windlass_walk.h"

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

// The same frames as the kernel side leaves them once it knows the heap: it reads the unwind information itself.
class ByKernelSide {
 public:
  ByKernelSide(pid_t pid, StepJudge& judge) : judge_(judge) {
    const auto at = test::find_in_images(judge.memory(), test::maps_of(pid), runtimes::coreclr::find_descriptor);
    const auto descriptor = at ? runtimes::coreclr::Descriptor::read(judge.memory(), *at)
                               : fail(ErrorCode::kNotFound, "no CoreCLR in the process", 0);
    if (auto code = descriptor ? runtimes::coreclr::CodeMap::make(*descriptor) : Failure(descriptor.error()))
      map_ = std::make_unique<runtimes::coreclr::CodeMap>(*code);
    unwind_->env.context = const_cast<Memory*>(&judge.memory());  // only read
    unwind_->env.read = [](void* context, void* to, __u32 size, __u64 address) {
      return static_cast<const Memory*>(context)->read(address, to, size) ? 0 : 1;
    };
    judge.ways.also = [this, before = judge.ways.also](const user_regs_struct& now, const StepJudge::Call& call) {
      std::string wrong = before ? before(now, call) : "";
      return wrong.empty() ? leave(now, call) : wrong;
    };
  }

  std::size_t left = 0, to_the_agent = 0;

 private:
  std::string leave(const user_regs_struct& now, const StepJudge::Call& call) {
    const auto heap = map_ ? map_->heap_of(judge_.memory(), now.rip) : std::nullopt;
    if (!heap) return "";
    wl_cursor& cursor = unwind_->cursor;
    cursor = {};
    cursor.regs[WL_PC] = now.rip;
    cursor.regs[WL_SP] = now.rsp;
    cursor.regs[WL_FP] = now.rbp;
    cursor.valid = WL_VALID_BASE | 1U << WL_FP;
    cursor.exact = 1;
    std::memcpy(&unwind_->learned, &*heap, sizeof *heap);
    if (wl_find_method_rule(unwind_.get(), now.rip) != 0) return ++to_the_agent, "";
    ++left;
    if (wl_apply(unwind_.get(), &unwind_->rule, WL_NO_XREG, now.rip) != WL_CONTINUE) return "the kernel side stops";
    const std::uint64_t fp = call.before.get(6);
    if (cursor.regs[WL_PC] == call.pc && cursor.regs[WL_SP] == call.sp && cursor.regs[WL_FP] == fp) return "";
    return fmt::format("kernel side: pc {:#x} sp {:#x} rbp {:#x}, not {:#x} {:#x} {:#x}", cursor.regs[WL_PC],
                       cursor.regs[WL_SP], cursor.regs[WL_FP], call.pc, call.sp, fp);
  }

  StepJudge& judge_;
  std::unique_ptr<runtimes::coreclr::CodeMap> map_;
  std::unique_ptr<wl_unwind> unwind_ = std::make_unique<wl_unwind>();
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
    const ByKernelSide kernel(pid, judge);
    // A thread that stands in the runtime's own code, compiling say, may stay there for a long time.
    judge.run(WINDLASS_STEPS, [&] { return judge.methods.size() >= GetParam().methods; });
    ::printf("%zu instructions judged (%zu by the iterator), %zu different ones of %zu methods and stubs: %zu wrong\n",
             judge.judged, iterator.iterated, judge.instructions.size(), judge.methods.size(), judge.wrong);
    ::printf("%zu left by the kernel side, %zu left to the agent\n", kernel.left, kernel.to_the_agent);
    EXPECT_GT(kernel.left, kernel.to_the_agent * 2);
    ::printf("%s", judge.peers_text().c_str());
    EXPECT_GT(iterator.iterated, judge.judged / 2);
    EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
    EXPECT_GE(judge.methods.size(), GetParam().methods);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, __WALL);
}

// An installation's framework was compiled ahead of time: DLLs for Linux, with Windows' unwind information. The
// program's own code is compiled at run time.
void expect_callers_of_installed(const std::vector<std::string>& words) {
  // The framework's code is not compiled again.
  test::ChildProgram program(words, test::kCoreClrFolder + "/installed.txt", STDERR_FILENO,
                             {{"DOTNET_TC_CallCounting", "0"}, {"DOTNET_DbgEnableMiniDump", "0"}});
  // Frames of methods with their names; else they would be of a file: "/.../System.Private.CoreLib.dll+0x1c8f1".
  const auto has_names = [](const std::string& stacks) {
    return stacks.find(" System.") != std::string::npos && stacks.find(" Chains.Methods.Steady()") != std::string::npos;
  };
  const auto walked = [&] {
    return run(WINDLASS_COMMAND " walk -p " + std::to_string(program.pid()) + " 2>&1").output;
  };
  std::string last;
  for (int i = 0; i < 300 && !has_names(last = walked()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(has_names(last)) << last;
  ASSERT_TRUE(test::stop(program.pid()));
  StepJudge judge(program.pid());
  std::vector<AddressRange> ahead, generated;
  for (const auto& map : test::maps_of(program.pid())) {
    if (!map.executable) continue;
    if (map.path.ends_with(".dll")) ahead.push_back({map.begin, map.end});
    if (map.path.starts_with("/memfd:doublemapper")) generated.push_back({map.begin, map.end});
  }
  const auto is_in = [](const std::vector<AddressRange>& ranges, std::uint64_t pc) {
    return std::ranges::any_of(ranges, [&](const AddressRange& range) { return range.contains(pc); });
  };
  judge.ways.judges = [&](std::uint64_t pc) { return is_in(ahead, pc) || is_in(generated, pc); };
  judge.run(WINDLASS_STEPS, [&] { return judge.instructions.size() >= 3'000; });
  const auto in_dlls = std::ranges::count_if(judge.instructions, [&](std::uint64_t pc) { return is_in(ahead, pc); });
  ::printf("%zu instructions judged, %zu different ones, %td of these in DLLs: %zu wrong\n", judge.judged,
           judge.instructions.size(), in_dlls, judge.wrong);
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  EXPECT_GE(in_dlls, 1'000);
  EXPECT_GT(judge.instructions.size(), static_cast<std::size_t>(in_dlls));
}

// .NET 9.
TEST(InstalledCoreClr, EveryInstructionHasItsCaller) {
  const std::string folder = test::kCoreClrFolder + "/net9";
  if (const std::string why = test::make_program_on_installed_net(folder); !why.empty()) GTEST_SKIP() << why;
  expect_callers_of_installed({folder + "/dist/azmcp"});
}

TEST(InstalledCoreClr, EveryInstructionOfNet8HasItsCaller) {
  test::MachinesNet net;
  if (const std::string why = test::make_program_on_machines_net("methods", 8, net); !why.empty()) GTEST_SKIP() << why;
  expect_callers_of_installed(net.words("methods"));
}

// All of it is compiled when it runs, and the framework, too.
TEST(InstalledCoreClr, EveryInstructionOfNet8ThatItCompilesHasItsCaller) {
  test::MachinesNet net;
  if (const std::string why = test::make_program_on_machines_net("methods", 8, net); !why.empty()) GTEST_SKIP() << why;
  for (const char* tiers : {"1", "0"}) {
    test::ChildProgram program(
        net.words("methods"), test::kCoreClrFolder + "/installed.txt", STDERR_FILENO,
        {{"DOTNET_ReadyToRun", "0"}, {"DOTNET_TieredCompilation", tiers}, {"DOTNET_DbgEnableMiniDump", "0"}});
    std::this_thread::sleep_for(std::chrono::seconds(10));  // its methods have been compiled by then
    ASSERT_TRUE(test::stop(program.pid()));
    StepJudge judge(program.pid());
    judge.run(WINDLASS_STEPS, [&] { return judge.methods.size() >= 50; });
    ::printf("%zu instructions judged, %zu different ones of %zu methods and stubs: %zu wrong\n", judge.judged,
             judge.instructions.size(), judge.methods.size(), judge.wrong);
    EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
    EXPECT_GE(judge.methods.size(), 50U);
  }
}

// In tiers, as it does by itself; all of it as it comes first, which inlines nothing; all of it optimised.
INSTANTIATE_TEST_SUITE_P(Ways, CoreClrSteps,
                         ::testing::Values(Way{"tiers", "DOTNET_TieredCompilation", "1", 50},
                                           Way{"first_tier", "DOTNET_TC_CallCounting", "0", 200},
                                           Way{"optimised", "DOTNET_TieredCompilation", "0", 80}),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace windlass
