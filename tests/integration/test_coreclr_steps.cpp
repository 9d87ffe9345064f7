// A thread of a real CoreCLR, one instruction at a time: at each of managed code the walker must say the caller that a
// shadow stack has, which is kept by the calls that were executed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "code/stack_effect.h"
#include "integration/coreclr/program.h"
#include "process/proc_file.h"
#include "process/proc_maps.h"
#include "process/process_memory.h"
#include "runtimes/coreclr/find.h"
#include "support/coreclr_walk.h"
#include "walk/module.h"
#include "walk/target/process_modules.h"
#include "windlass/target.h"

namespace windlass {
namespace {

using test::run;

// By DWARF number: what a call preserves.
constexpr std::array<RegisterNumber, 6> kPreserved = {3, 6, 12, 13, 14, 15};

Registers registers_of(const user_regs_struct& from) {
  Registers to(Architecture::kX86_64);
  const std::array<unsigned long long, 16> values = {from.rax, from.rdx, from.rcx, from.rbx, from.rsi, from.rdi,
                                                     from.rbp, from.rsp, from.r8,  from.r9,  from.r10, from.r11,
                                                     from.r12, from.r13, from.r14, from.r15};
  for (RegisterNumber reg = 0; reg < values.size(); ++reg) to.set(reg, values[reg]);
  to.set_sp(from.rsp);
  to.set_pc(CodeAddress::instruction(from.rip));
  return to;
}

// One for each call that was executed and has not returned.
struct Call {
  std::uint64_t slot = 0;  // of the return address
  std::uint64_t pc = 0;    // the return address
  Registers before{Architecture::kX86_64};
};

class Judge {
 public:
  explicit Judge(pid_t pid)
      : pid_(pid),
        target_{.kind = TargetKind::kProcess,
                .space = AddressSpace(Architecture::kX86_64, std::make_unique<process::MemoryFile>(pid)),
                .threads = {},
                .command = {},
                .process = 0,
                .problems = {},
                .notes = {},
                .attachment = nullptr} {
    look();
    open_runtime();
  }

  std::size_t judged = 0, wrong = 0;
  std::size_t iterated = 0;  // of these by the iterator over managed stacks, too
  std::set<std::uint64_t> methods, instructions;
  std::string first_wrong;

  // False: the process has ended.
  bool step() {
    user_regs_struct before{};
    if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &before) != 0) return false;
    judge(before);
    const bool calls = is_call(before.rip);
    if (::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, pending_) != 0) return false;
    // A handler's frame is made by no call.
    if (pending_ != 0) calls_.clear();
    pending_ = 0;
    int status = 0;
    if (::waitpid(pid_, &status, __WALL) != pid_ || !WIFSTOPPED(status)) return false;
    if (WSTOPSIG(status) != SIGTRAP) pending_ = WSTOPSIG(status);
    user_regs_struct after{};
    if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &after) != 0) return false;
    std::uint64_t pushed = 0;
    if (calls && after.rsp + 8 == before.rsp && target_.space.memory().read(after.rsp, &pushed, sizeof pushed))
      calls_.push_back({after.rsp, pushed, registers_of(before)});
    while (!calls_.empty() && after.rsp > calls_.back().slot) calls_.pop_back();
    return true;
  }

 private:
  void open_runtime() {
    const Memory& memory = target_.space.memory();
    for (const process::ProcMap& map :
         process::parse_proc_maps(process::read_proc_file(fmt::format("/proc/{}/maps", pid_)))) {
      if (!map.has_file() || map.offset != 0) continue;
      const auto found = runtimes::coreclr::find_descriptor(memory, map.begin);
      if (!found) continue;
      const auto descriptor = runtimes::coreclr::Descriptor::read(memory, *found);
      if (!descriptor) continue;
      if (auto code = runtimes::coreclr::CodeMap::make(*descriptor)) {
        map_ = std::make_unique<runtimes::coreclr::CodeMap>(*code);
        runtime_ = std::make_unique<test::CoreClrRuntime>(memory, *map_);
      }
    }
  }

  // The caller as the iterator over managed stacks has it, executing the method's unwind information. Stubs are no
  // methods.
  std::string iterate(const user_regs_struct& now, const Call& call) {
    if (!runtime_ || runtime_->find(now.rip) == nullptr) return "";
    ++iterated;
    const managed::ManagedThread thread{.space = &target_.space, .runtime = runtime_.get()};
    managed::ManagedWalker walker(thread, registers_of(now),
                                  managed::kThreadIsSuspended | managed::kNotifyOnUnmanagedToManaged);
    if (!walker.next() || !walker.next())
      return walker.error() ? walker.error()->text() : "the iterator shows no caller";
    const Registers& caller = walker.frame().registers;
    if (caller.pc().value() != call.pc || caller.sp() != call.slot + 8)
      return fmt::format("iterator: pc {:#x} sp {:#x}, not {:#x} {:#x}", caller.pc().value(), caller.sp(), call.pc,
                         call.slot + 8);
    for (const RegisterNumber reg : kPreserved)
      if (caller.has(reg) && caller.get(reg) != call.before.get(reg))
        return fmt::format("iterator: register {}: {:#x}, not {:#x}", reg, caller.get(reg), call.before.get(reg));
    return "";
  }

  void look() { (void)modules_.update(target_, pid_, process::read_proc_file(fmt::format("/proc/{}/maps", pid_))); }

  bool is_call(std::uint64_t pc) {
    const auto [known, is_new] = is_call_.try_emplace(pc, false);
    if (!is_new) return known->second;
    std::array<std::byte, 16> code{};
    if (!target_.space.memory().read(pc, code.data(), code.size())) return false;
    const auto effect = code::stack_effect(ByteView(code.data(), code.size()), pc);
    known->second = effect && effect->kind == code::StackEffect::Kind::kCall;
    return known->second;
  }

  void judge(const user_regs_struct& now) {
    if (calls_.empty()) return;
    const walk::Module* module = target_.space.find(now.rip);
    if (module == nullptr) look(), module = target_.space.find(now.rip);
    if (module == nullptr || !module->generated()) return;
    modules_.fix_time(target_);
    StackWalker walker(target_.space, registers_of(now));
    ++judged;
    instructions.insert(now.rip);
    if (const auto function = module->function_at(now.rip)) methods.insert(function->begin);
    const Call& call = calls_.back();
    std::string what;
    if (!walker.step()) {
      what = walker.error().text();
    } else {
      const Registers& caller = walker.frame().registers;
      if (caller.pc().value() != call.pc || caller.sp() != call.slot + 8)
        what =
            fmt::format("pc {:#x} sp {:#x}, not {:#x} {:#x}", caller.pc().value(), caller.sp(), call.pc, call.slot + 8);
      for (const RegisterNumber reg : kPreserved)
        if (what.empty() && caller.has(reg) && caller.get(reg) != call.before.get(reg))
          what = fmt::format("register {}: {:#x}, not {:#x}", reg, caller.get(reg), call.before.get(reg));
    }
    if (what.empty()) what = iterate(now, call);
    if (what.empty()) return;
    if (wrong++ < 8) first_wrong += fmt::format("at {:#x}: {}\n", now.rip, what);
  }

  pid_t pid_;
  int pending_ = 0;  // a signal to be delivered
  Target target_;
  walk::ProcessModules modules_;
  std::unique_ptr<runtimes::coreclr::CodeMap> map_;
  std::unique_ptr<test::CoreClrRuntime> runtime_;
  std::vector<Call> calls_;
  std::map<std::uint64_t, bool> is_call_;
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
  int status = 0;
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr), 0);
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(pid, &status, __WALL), pid);
  {
    Judge judge(pid);
    // A thread that stands in the runtime's own code, compiling say, may stay there for all these steps: then later
    // again.
    for (int attempt = 0; attempt < 3 && judge.judged == 0; ++attempt) {
      if (attempt != 0) {
        ASSERT_EQ(::ptrace(PTRACE_CONT, pid, nullptr, nullptr), 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr), 0);
        ASSERT_EQ(::waitpid(pid, &status, __WALL), pid);
      }
      for (int steps = 0; steps < WINDLASS_STEPS && judge.step(); ++steps) {}
    }
    ::printf("%zu instructions judged (%zu by the iterator), %zu different ones of %zu methods and stubs: %zu wrong\n",
             judge.judged, judge.iterated, judge.instructions.size(), judge.methods.size(), judge.wrong);
    EXPECT_GT(judge.iterated, judge.judged / 2);
    EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
    EXPECT_GE(judge.methods.size(), GetParam().methods);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, __WALL);
}

// In tiers, as it does by itself; all of it as it comes first, which inlines nothing; all of it optimised.
INSTANTIATE_TEST_SUITE_P(Ways, CoreClrSteps,
                         ::testing::Values(Way{"tiers", "DOTNET_TieredCompilation", "1", 50},
                                           Way{"first_tier", "DOTNET_TC_CallCounting", "0", 200},
                                           Way{"optimised", "DOTNET_TieredCompilation", "0", 80}),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace windlass
