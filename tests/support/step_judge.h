// A thread of another process, one instruction at a time: at each of generated code the walker must say the caller that
// a shadow stack has, which is kept by the calls that are executed.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "code/stack_effect.h"
#include "process/proc_file.h"
#include "process/process_memory.h"
#include "walk/module.h"
#include "walk/target/process_modules.h"
#include "windlass/target.h"

namespace windlass::test {

inline Registers registers_of(const user_regs_struct& from) {
  Registers to(Architecture::kX86_64);
  const std::array<unsigned long long, 16> values = {from.rax, from.rdx, from.rcx, from.rbx, from.rsi, from.rdi,
                                                     from.rbp, from.rsp, from.r8,  from.r9,  from.r10, from.r11,
                                                     from.r12, from.r13, from.r14, from.r15};
  for (RegisterNumber reg = 0; reg < values.size(); ++reg) to.set(reg, values[reg]);
  to.set_sp(from.rsp);
  to.set_pc(CodeAddress::instruction(from.rip));
  return to;
}

class StepJudge {
 public:
  // One for each call that was executed and has not returned.
  struct Call {
    std::uint64_t slot = 0;  // of the return address
    std::uint64_t pc = 0;    // the return address
    std::uint64_t sp = 0;    // where it returns
    Registers before{Architecture::kX86_64};
  };
  struct Entered {
    Call call;
    bool goes_on = false;  // it is the last call, whose arguments have been moved
  };
  // What a runtime does in another way than by calls and returns.
  struct Ways {
    // By DWARF number: what a call preserves.
    std::vector<RegisterNumber> preserved = {3, 6, 12, 13, 14, 15};
    // What else is to be held against the truth; empty: nothing, or it is right.
    std::function<std::string(const user_regs_struct& now, const Call& call)> also = {};
    // The code at `now` was entered by a jump, with a return address that the caller has pushed.
    std::function<std::optional<Entered>(const user_regs_struct& before, const user_regs_struct& now)> entered = {};
    // May the return address be in a register now, with sp where it returns?
    std::function<bool(std::uint64_t before, std::uint64_t now)> may_have_popped = {};
    // A call within one function, which makes no frame of its own.
    std::function<bool(std::uint64_t from, std::uint64_t to)> is_own_call = {};
    // The thread is on another stack than the code that is judged, where nothing of the calls that are kept changes.
    std::function<bool(const user_regs_struct& before, const user_regs_struct& now)> is_aside = {};
    // The stack is made anew there: nothing is known of it any more.
    std::function<bool(std::uint64_t pc)> remakes_stack = {};
    // Is the code there what is to be judged? Without it all that is generated.
    std::function<bool(std::uint64_t pc)> is_judged = {};
    // What the code there is, for messages.
    std::function<std::string(std::uint64_t pc)> place = {};
    // What the functions are counted by.
    std::function<std::string(const Frame& frame)> name = {};
  };

  explicit StepJudge(pid_t pid)
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
  }

  Ways ways;
  std::size_t judged = 0, wrong = 0;
  std::set<std::uint64_t> methods, instructions;
  std::set<std::string> names;
  std::string first_wrong;

  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] const Memory& memory() const { return target_.space.memory(); }
  // The module of generated code there; null: there is none.
  [[nodiscard]] const walk::Module* generated(std::uint64_t pc) {
    const walk::Module* module = target_.space.find(pc);
    if (module == nullptr) look(), module = target_.space.find(pc);
    return module != nullptr && module->generated() ? module : nullptr;
  }

  // Is it a jump to where a register or memory says?
  [[nodiscard]] bool jumps_anywhere(std::uint64_t pc) {
    const code::StackEffect& effect = effect_at(pc);
    return effect.kind == code::StackEffect::Kind::kJump && effect.target == 0;
  }

  // False: the process has ended.
  bool step() {
    user_regs_struct before{};
    if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &before) != 0) return false;
    judge(before);
    const bool calls = effect_at(before.rip).kind == code::StackEffect::Kind::kCall;
    if (::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, pending_) != 0) return false;
    // A handler's frame is made by no call.
    if (pending_ != 0) calls_.clear();
    pending_ = 0;
    int status = 0;
    if (::waitpid(pid_, &status, __WALL) != pid_ || !WIFSTOPPED(status)) return false;
    if (WSTOPSIG(status) != SIGTRAP) pending_ = WSTOPSIG(status);
    user_regs_struct after{};
    if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &after) != 0) return false;
    follow(before, after, calls);
    return true;
  }

 private:
  void follow(const user_regs_struct& before, const user_regs_struct& after, bool calls) {
    if (ways.is_aside && ways.is_aside(before, after)) return;
    const auto is_over = [&](const Call& call) {
      if (!ways.may_have_popped) return after.rsp > call.slot;
      return after.rsp > call.sp ||
             (after.rsp > call.slot && after.rsp == call.sp && !ways.may_have_popped(before.rip, after.rip)) ||
             (after.rip == call.pc && after.rsp >= call.sp);
    };
    if (ways.remakes_stack && ways.remakes_stack(after.rip)) calls_.clear();
    while (!calls_.empty() && is_over(calls_.back())) calls_.pop_back();
    std::uint64_t pushed = 0;
    if (calls && after.rsp + 8 == before.rsp && memory().read(after.rsp, &pushed, sizeof pushed)) {
      if (ways.is_own_call && ways.is_own_call(before.rip, after.rip)) return;
      while (!calls_.empty() && calls_.back().slot <= after.rsp) calls_.pop_back();
      calls_.push_back({after.rsp, pushed, after.rsp + 8, registers_of(before)});
    } else if (ways.entered) {
      if (auto entered = ways.entered(before, after)) {
        if (entered->goes_on && !calls_.empty() && calls_.back().pc == entered->call.pc) calls_.pop_back();
        calls_.push_back(entered->call);
      }
    }
  }

  void look() { (void)modules_.update(target_, pid_, process::read_proc_file(fmt::format("/proc/{}/maps", pid_))); }

  // What the instruction does; kNone where it cannot be read.
  const code::StackEffect& effect_at(std::uint64_t pc) {
    const auto [known, is_new] = effects_.try_emplace(pc);
    std::array<std::byte, 16> code{};
    if (is_new && memory().read(pc, code.data(), code.size()))
      known->second = code::stack_effect(ByteView(code.data(), code.size()), pc).value_or(code::StackEffect());
    return known->second;
  }

  [[nodiscard]] std::string compare(const StackWalker& walker, const Call& call) const {
    const Registers& caller = walker.frame().registers;
    // A runtime may have put another address there, to be told when the method returns.
    std::uint64_t there = call.pc;
    if (caller.pc().value() != call.pc) (void)memory().read(call.slot, &there, sizeof there);
    if (caller.pc().value() != there || caller.sp() != call.sp)
      return fmt::format("pc {:#x} sp {:#x}, not {:#x} {:#x}", caller.pc().value(), caller.sp(), call.pc, call.sp);
    for (const RegisterNumber reg : ways.preserved)
      if (caller.has(reg) && caller.get(reg) != call.before.get(reg))
        return fmt::format("register {}: {:#x}, not {:#x}", reg, caller.get(reg), call.before.get(reg));
    return {};
  }

  void judge(const user_regs_struct& now) {
    if (calls_.empty()) return;
    const walk::Module* module = generated(now.rip);
    if (module == nullptr || (ways.is_judged && !ways.is_judged(now.rip))) return;
    modules_.fix_time(target_);
    StackWalker walker(target_.space, registers_of(now));
    ++judged;
    instructions.insert(now.rip);
    if (const auto function = module->function_at(now.rip)) methods.insert(function->begin);
    if (ways.name) names.insert(ways.name(walker.frame()));
    const Call& call = calls_.back();
    std::string what = walker.step() ? compare(walker, call) : walker.error().text();
    if (what.empty() && ways.also) what = ways.also(now, call);
    if (what.empty()) return;
    if (wrong++ < 8)
      first_wrong += fmt::format("at {:#x}{} sp {:#x}: {}\n", now.rip, ways.place ? ways.place(now.rip) : std::string(),
                                 now.rsp, what);
  }

  pid_t pid_;
  int pending_ = 0;  // a signal to be delivered
  Target target_;
  walk::ProcessModules modules_;
  std::vector<Call> calls_;
  std::map<std::uint64_t, code::StackEffect> effects_;
};

}  // namespace windlass::test
