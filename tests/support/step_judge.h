// A thread of another process, single-stepped. At each instruction of generated code the walker must give the caller of
// a shadow stack, which is kept by the calls that are executed.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "os/proc_file.h"
#include "os/process_memory.h"
#include "support/peer_rules.h"
#include "walk/inside.h"
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
  to.set(x86_64::kFsBase, from.fs_base);
  return to;
}

// Stops a thread of another process that runs, so that it can be stepped. False: it cannot be, or has ended.
[[nodiscard]] inline bool stop(pid_t thread) {
  int status = 0;
  return ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0 &&
         ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0 && ::waitpid(thread, &status, __WALL) == thread &&
         WIFSTOPPED(status);
}

class StepJudge {
 public:
  // One for each call that was executed and has not returned.
  struct Call {
    std::uint64_t slot = 0;  // of the return address
    std::uint64_t pc = 0;    // the return address
    std::uint64_t sp = 0;    // where it returns
    Registers before{Architecture::kX86_64};
    bool in_register = false;  // the return address has been popped, to be pushed elsewhere or returned to
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
    // The code there takes arguments off the stack that its caller does not need back: sp does not say whether it has
    // returned.
    std::function<bool(std::uint64_t before, std::uint64_t now)> drops_arguments = {};
    // A function may pop its return address into a register, drop its arguments and push the address again, for itself
    // or for the function to which it jumps. In between, the place of the return address is not known.
    bool moves_return_address = false;
    // A return may take arguments off the stack. Then the walker may say the caller's sp with or without these.
    bool takes_arguments = false;
    // A call within one function, which makes no frame of its own.
    std::function<bool(std::uint64_t from, std::uint64_t to)> is_own_call = {};
    // The thread is on another stack than the code that is judged, where nothing of the calls that are kept changes.
    std::function<bool(const user_regs_struct& before, const user_regs_struct& now)> is_aside = {};
    // The stack is made anew there: nothing is known of it any more.
    std::function<bool(const user_regs_struct& before, const user_regs_struct& now)> remakes_stack = {};
    // What the code there is, for messages.
    std::function<std::string(std::uint64_t pc)> place = {};
    // What the functions are counted by.
    std::function<std::string(const Frame& frame)> name = {};
    // The walker may say that it does not know the caller, or guess: then it is not judged.
    bool may_refuse = false;
    // Which code is judged; empty: what was made at run time.
    std::function<bool(std::uint64_t pc)> judges = {};
    // Which of several stacks the thread is on, by a number; empty: there is one.
    std::function<std::uint64_t(const user_regs_struct& now)> stack = {};
    // And that on which the frame at hand has its return address, where it has left that one.
    std::function<std::uint64_t(const user_regs_struct& now)> called_on = {};
  };

  // How somebody else finds the caller's pc, and how often that is right.
  struct Peer {
    std::string name;
    std::function<PeerCaller(const user_regs_struct& now)> rule;
    std::size_t right = 0;
  };

  explicit StepJudge(pid_t pid)
      : pid_(pid),
        target_(TargetKind::kProcess, AddressSpace(Architecture::kX86_64, std::make_unique<os::MemoryFile>(pid))) {
    look();
    add_peer("frame pointers", [this](const user_regs_struct& now) { return by_frame_pointer(memory(), now); });
  }

  // Counted beside the walker where bench/runtimes.sh asks for it; it takes time.
  void add_peer(std::string name, std::function<PeerCaller(const user_regs_struct& now)> rule) {
    if (std::getenv("WINDLASS_STEP_PEERS") != nullptr) peers_.push_back({std::move(name), std::move(rule)});
  }
  // A line, "caller right: windlass 100%, ..."; empty: none are counted.
  [[nodiscard]] std::string peers_text() const {
    if (peers_.empty() || judged == 0) return {};
    const auto share = [this](std::size_t right) {
      return 100.0 * static_cast<double>(right) / static_cast<double>(judged);
    };
    std::string text = fmt::format("caller right of {}: windlass {:.3f}%", judged, share(judged - wrong));
    for (const Peer& peer : peers_) text += fmt::format(", {} {:.2f}%", peer.name, share(peer.right));
    return text + "\n";
  }

  Ways ways;
  std::size_t judged = 0, wrong = 0;
  std::set<std::uint64_t> methods, instructions, refused;  // by address: a loop counts once
  std::set<std::string> names;
  std::string first_wrong;  // of each instruction the first time

  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] const Memory& memory() const { return target_.space.memory(); }
  // The module of generated code there; null: there is none.
  [[nodiscard]] const walk::Module* generated(std::uint64_t pc) {
    const walk::Module* module = walk::module_at(target_.space, pc);
    if (module == nullptr) look(), module = walk::module_at(target_.space, pc);
    return module != nullptr && module->generated() ? module : nullptr;
  }

  // Is it a jump to where a register or memory says?
  [[nodiscard]] bool jumps_anywhere(std::uint64_t pc) {
    const flow::StackEffect& effect = effect_at(pc);
    return effect.kind == flow::StackEffect::Kind::kJump && effect.target == 0;
  }

  // Does it make the stack pointer of what is in memory, or anything else that is not known?
  [[nodiscard]] bool makes_sp(std::uint64_t pc) { return effect_at(pc).kind == flow::StackEffect::Kind::kUnknown; }

  // Another thread of the process from now on, which is stopped; with a signal that it has stopped for and not got.
  // Nothing is known of any stack any more.
  void take_thread(pid_t thread, int signal = 0) {
    pid_ = thread;
    pending_ = signal;
    unfinished_ = kNone;
    stacks_.clear();
    current_ = kNone;
  }
  // A signal that the thread has stopped for and not got yet, for who lets it go; 0: none.
  [[nodiscard]] int take_pending_signal() { return std::exchange(pending_, 0); }
  // The calls under way on a stack, as far as they were seen; the last one last.
  [[nodiscard]] const std::vector<Call>& calls_on(std::uint64_t stack) { return stacks_[stack].calls; }
  // A stack, which was in [low, high), has been copied to somewhere else.
  void move_stack(std::uint64_t stack, std::uint64_t low, std::uint64_t high, std::uint64_t by) {
    Stack& moved = stacks_[stack];
    moved.sp += by;
    for (Call& call : moved.calls) {
      call.slot += by, call.sp += by;
      for (const RegisterNumber reg : ways.preserved)
        if (const std::uint64_t value = call.before.get(reg); value >= low && value < high)
          call.before.set(reg, value + by);
    }
  }

  // False: the process has ended; or the step has not, when the second signal comes that interrupts the wait.
  bool step() {
    user_regs_struct before{};
    if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &before) != 0) return false;
    select(before);
    judge(before);
    const bool calls = effect_at(before.rip).kind == flow::StackEffect::Kind::kCall;
    const bool handles = pending_ != 0;
    if (::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, pending_) != 0) return false;
    pending_ = 0;
    unfinished_ = before.rip;
    int status = 0;
    if (!wait(status) || !WIFSTOPPED(status)) return false;
    if (WSTOPSIG(status) != SIGTRAP) pending_ = WSTOPSIG(status);
    user_regs_struct after{};
    if (::ptrace(PTRACE_GETREGS, pid_, nullptr, &after) != 0) return false;
    finish_step(after);
    select(after);
    follow(before, after, calls && !handles, handles);
    return true;
  }

  // For a thread that has stopped behind its last step, or that is let go because the step took too long: pushfq pushes
  // the trap flag by which the thread is stepped. Any thread that pops the flag later without being traced would be
  // ended by SIGTRAP. An example is Go's asyncPreempt, whose goroutine goes on in any thread.
  void finish_step(const user_regs_struct& now) {
    constexpr std::uint8_t kPushFlags = 0x9c;
    constexpr std::uint64_t kTrap = 0x100;
    const std::uint64_t pc = std::exchange(unfinished_, kNone);
    std::uint8_t opcode = 0;
    std::uint64_t flags = 0;
    if (now.rip == pc + 1 && memory().read(pc, &opcode, sizeof opcode) && opcode == kPushFlags &&
        memory().read(now.rsp, &flags, sizeof flags))
      ::ptrace(PTRACE_POKEDATA, pid_, now.rsp, flags & ~kTrap);
  }

  // That many steps in four stretches, between which the thread runs on: where it is then is chance. More stretches, as
  // long as too little has been seen.
  void run(std::size_t steps, const std::function<bool()>& has_seen_enough) {
    for (int stretch = 0; stretch < 16 && (stretch < 4 || !has_seen_enough()); ++stretch) {
      if (stretch != 0 && !run_on()) return;
      for (std::size_t i = 0; i < steps / 4; ++i)
        if (!step()) return;
    }
  }

  // For a moment, without being judged. Nothing is known of any stack any more. False: the process has ended.
  [[nodiscard]] bool run_on() {
    int status = 0;
    if (::ptrace(PTRACE_CONT, pid_, nullptr, pending_) != 0) return false;
    ::usleep(100'000);
    if (::ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr) != 0 || !wait(status) || !WIFSTOPPED(status)) return false;
    take_thread(pid_, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
    return true;
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  static constexpr std::size_t kMostShown = 64;

  struct Stack {
    std::vector<Call> calls;
    std::uint64_t sp = 0;  // when it was left
  };

  // A timer's signals say when it has been too long.
  [[nodiscard]] bool wait(int& status) const {
    for (unsigned interrupted = 0; interrupted < 2;) {
      if (::waitpid(pid_, &status, __WALL) == pid_) return true;
      if (errno != EINTR) return false;
      ++interrupted;
    }
    return false;
  }

  // Calls whose return addresses are others by now, and what they have called: another thread may also have left the
  // stack just as deep.
  void forget_replaced(std::vector<Call>& calls) const {
    const auto is_replaced = [&](const Call& call) {
      std::uint64_t there = 0;
      return !call.in_register && (!memory().read(call.slot, &there, sizeof there) || there != call.pc);
    };
    calls.erase(std::find_if(calls.begin(), calls.end(), is_replaced), calls.end());
  }

  // Onto the stack that the thread is on. Where it is not continued as it was left (a call more or less), another
  // thread has used it meanwhile.
  void select(const user_regs_struct& now) {
    const std::uint64_t number = ways.stack ? ways.stack(now) : 0;
    Stack& stack = stacks_[number];
    if (number != current_ && stack.sp - now.rsp + 8 > 16) stack.calls.clear();
    if (number != current_) forget_replaced(stack.calls);
    stack.sp = now.rsp;
    current_ = number;
  }

  void follow(const user_regs_struct& before, const user_regs_struct& after, bool calls, bool handles) {
    if (ways.is_aside && ways.is_aside(before, after)) return;
    std::vector<Call>& open = stacks_[current_].calls;
    if (ways.moves_return_address && !open.empty() && moves(before, after, open)) return;
    const auto is_over = [&](const Call& call) {
      if (!ways.may_have_popped) return after.rsp > call.slot;
      return after.rsp > call.sp ||
             (after.rsp > call.slot && after.rsp == call.sp && !ways.may_have_popped(before.rip, after.rip)) ||
             (after.rip == call.pc && after.rsp >= call.sp);
    };
    const bool drops = ways.drops_arguments && ways.drops_arguments(before.rip, after.rip);
    while (!drops && !open.empty() && is_over(open.back())) open.pop_back();
    if (ways.remakes_stack && !open.empty() && ways.remakes_stack(before, after)) open.clear();
    std::uint64_t pushed = 0;
    if (handles) {  // what was there is known again when it is used; the handler's caller is what leads back
      open.clear();
      if (ways.stack && memory().read(after.rsp, &pushed, sizeof pushed))
        open.push_back({after.rsp, pushed, after.rsp + 8, registers_of(after)});
    } else if (calls && after.rsp + 8 == before.rsp && memory().read(after.rsp, &pushed, sizeof pushed)) {
      if (ways.is_own_call && ways.is_own_call(before.rip, after.rip)) return;
      while (!open.empty() && open.back().slot <= after.rsp) open.pop_back();
      open.push_back({after.rsp, pushed, after.rsp + 8, registers_of(before)});
    } else if (ways.entered) {
      if (auto entered = ways.entered(before, after)) {
        if (entered->goes_on && !open.empty() && open.back().pc == entered->call.pc) open.pop_back();
        // It is there already where a signal's handler has come back to the first instruction of what was entered.
        while (!open.empty() && open.back().slot <= entered->call.slot) open.pop_back();
        open.push_back(entered->call);
      }
    }
  }

  [[nodiscard]] std::uint64_t function(std::uint64_t pc) {
    const walk::Module* module = generated(pc);
    return module != nullptr ? module->function_start(pc) : 0;
  }

  // Is the last call's return address in a register now, or has it just left one?
  bool moves(const user_regs_struct& before, const user_regs_struct& after, std::vector<Call>& open) {
    using Kind = flow::StackEffect::Kind;
    Call& call = open.back();
    const Kind kind = effect_at(before.rip).kind;
    const auto is_on_top = [&] {
      std::uint64_t top = 0;
      return memory().read(after.rsp, &top, sizeof top) && top == call.pc;
    };
    if (!call.in_register) {
      if (kind == Kind::kPop && before.rsp == call.slot) return call.in_register = true;
      // `pop [rsp]` moves it up by a word, over the argument that was there.
      if (kind == Kind::kMove && before.rsp == call.slot && after.rsp == call.slot + 8 && is_on_top())
        call.slot = after.rsp, call.sp = after.rsp + 8;
      // It may also have been copied below more arguments, for the function that is jumped to.
      if (kind == Kind::kJump && after.rsp != call.slot && is_on_top() && function(before.rip) != function(after.rip))
        call.slot = after.rsp, call.sp = after.rsp + 8;
      return false;
    }
    if (after.rip == call.pc)
      open.pop_back();
    else if (kind == Kind::kPush && is_on_top())
      call.slot = after.rsp, call.sp = after.rsp + 8, call.in_register = false;
    return true;
  }

  void look() { (void)modules_.update(target_, pid_, os::read_proc_file(fmt::format("/proc/{}/maps", pid_))); }

  // What the instruction does; kNone where it cannot be read.
  const flow::StackEffect& effect_at(std::uint64_t pc) {
    const auto [known, is_new] = effects_.try_emplace(pc);
    std::array<std::byte, 16> code{};
    if (is_new && memory().read(pc, code.data(), code.size()))
      known->second = flow::stack_effect(ByteView(code.data(), code.size()), pc).value_or(flow::StackEffect());
    return known->second;
  }

  // Where the return address is being moved the caller's sp is what it was at the call, or behind any copy of it.
  [[nodiscard]] bool is_right_sp(const Registers& now, std::uint64_t sp, const Call& call) const {
    if (sp == call.sp) return true;
    if (!ways.moves_return_address) return false;
    if (call.in_register || sp == call.before.sp()) return true;
    std::uint64_t copy = 0;
    if (sp < now.sp() || sp > call.sp || !memory().read(sp - 8, &copy, sizeof copy)) return false;
    bool has_copy = copy == call.pc;
    for (RegisterNumber reg = 0; reg < 16; ++reg) has_copy |= now.get(reg) == call.pc;
    return has_copy;
  }

  // Where the call returns. A runtime may have put another address there, to be told when the method returns.
  [[nodiscard]] bool is_right_pc(std::uint64_t pc, const Call& call) const {
    std::uint64_t there = call.pc;
    if (pc != call.pc && !call.in_register) (void)memory().read(call.slot, &there, sizeof there);
    return pc == there;
  }

  [[nodiscard]] std::string compare(const StackWalker& walker, const Registers& now, const Call& call) const {
    const Registers& caller = walker.frame().registers;
    const bool takes = ways.takes_arguments && caller.has_sp() && caller.sp() > call.sp && !call.in_register;
    if (caller.has_sp() && !takes && !is_right_sp(now, caller.sp(), call))
      return fmt::format("sp {:#x}, not {:#x}", caller.sp(), call.sp);
    if (!is_right_pc(caller.pc().value(), call))
      return fmt::format("pc {:#x} sp {:#x}, not {:#x} {:#x}", caller.pc().value(), caller.sp(), call.pc, call.sp);
    for (const RegisterNumber reg : ways.preserved)
      if (caller.has(reg) && caller.get(reg) != call.before.get(reg))
        return fmt::format("register {}: {:#x}, not {:#x}", reg, caller.get(reg), call.before.get(reg));
    return {};
  }

  // The module whose code is judged there; null: it is not.
  const walk::Module* judged_module(std::uint64_t pc) {
    if (!ways.judges) return generated(pc);
    return ways.judges(pc) ? walk::module_at(target_.space, pc) : nullptr;
  }

  void judge(const user_regs_struct& now) {
    const std::vector<Call>& open = stacks_[ways.called_on ? ways.called_on(now) : current_].calls;
    if (open.empty()) return;
    const walk::Module* module = judged_module(now.rip);
    if (module == nullptr) return;
    modules_.fix_time(target_);
    StackWalker walker(target_.space, registers_of(now));
    ++judged;
    instructions.insert(now.rip);
    if (const auto function = module->function_at(now.rip)) methods.insert(function->begin);
    if (ways.name) names.insert(ways.name(walker.frame()));
    const Call& call = open.back();
    for (Peer& peer : peers_)
      if (const PeerCaller caller = peer.rule(now); caller && is_right_pc(*caller, call)) ++peer.right;
    const bool stepped = walker.step();
    if (ways.may_refuse && (!stepped || walker.frame().certainty == FrameCertainty::kGuessed)) {
      refused.insert(now.rip);
      return;
    }
    std::string what = stepped ? compare(walker, registers_of(now), call) : walker.error().text();
    if (what.empty() && ways.also) what = ways.also(now, call);
    if (what.empty()) return;
    ++wrong;
    if (wrong_at_.size() < kMostShown && wrong_at_.insert(now.rip).second)
      first_wrong += fmt::format("at {:#x}{} sp {:#x}: {} (certainty {}, origin {})\n", now.rip,
                                 ways.place ? ways.place(now.rip) : std::string(), now.rsp, what,
                                 static_cast<int>(walker.frame().certainty), static_cast<int>(walker.frame().origin));
  }

  pid_t pid_;
  int pending_ = 0;  // a signal to be delivered
  Target target_;
  walk::ProcessModules modules_;
  std::map<std::uint64_t, Stack> stacks_;
  std::uint64_t current_ = kNone;
  std::uint64_t unfinished_ = kNone;  // the instruction of a step whose end has not been seen
  std::map<std::uint64_t, flow::StackEffect> effects_;
  std::set<std::uint64_t> wrong_at_;
  std::vector<Peer> peers_;
};

}  // namespace windlass::test
