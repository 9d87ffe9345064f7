// Threads of a Go program, one instruction at a time: at each of Go's code the walker must say the caller that a shadow
// stack has, one for each goroutine, system stack and signal stack.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "formats/go/code_map.h"
#include "formats/go/find.h"
#include "formats/go/names.h"
#include "formats/image/elf.h"
#include "integration/go/program.h"
#include "support/alarms.h"
#include "support/child_program.h"
#include "support/step_judge.h"
#include "support/whole.h"

namespace windlass {
namespace {

namespace go = runtimes::go;
using test::StepJudge;

// Names and addresses by nm: not by what is judged here.
class GoSymbols {
 public:
  explicit GoSymbols(const std::string& program) {
    std::istringstream list(test::run("nm -n " + program + " 2>&1").output);
    std::string address, kind, name;
    for (std::string line; std::getline(list, line);) {
      std::istringstream words(line);
      if (words >> address >> kind >> name && (kind == "T" || kind == "t"))
        names_[std::stoull(address, nullptr, 16)] = name;
    }
  }
  // Begin and name; 0: none.
  [[nodiscard]] std::pair<std::uint64_t, std::string_view> at(std::uint64_t pc) const {
    const auto behind = names_.upper_bound(pc);
    if (behind == names_.begin() || behind == names_.end()) return {};
    return {std::prev(behind)->first, std::prev(behind)->second};
  }

 private:
  std::map<std::uint64_t, std::string> names_;
};

// Which stack a thread is on, and the ways in which control moves between them (src/runtime/asm_amd64.s,
// signal_unix.go).
class GoWays {
 public:
  GoWays(StepJudge& judge, const std::string& program) : judge_(judge), symbols_(program) {
    judge.ways.preserved = {6};  // rbp; all others are the caller's to save
    judge.ways.judges = [this](std::uint64_t pc) { return is_judged(pc); };
    judge.ways.stack = [this](const user_regs_struct& now) { return stack_of(now); };
    judge.ways.called_on = [this](const user_regs_struct& now) { return called_on(now); };
    judge.ways.entered = [this](const auto& before, const auto& now) { return entered(before, now); };
    judge.ways.also = [this](const user_regs_struct& now, const auto&) { return whole_stack(now); };
    judge.ways.place = [this](std::uint64_t pc) {
      const auto [begin, name] = symbols_.at(pc);
      return fmt::format(" [{}+{:#x}]", name, pc - begin);
    };
  }

  std::size_t whole = 0, crossed = 0, injected = 0;
  std::size_t executed = 0;  // stacks that end below runtime.execute, where the thread has the next goroutine
  std::set<std::uint64_t> stacks;

 private:
  // A stack that was seen as its g's.
  struct Stack {
    std::uint64_t low = 0, high = 0;
    [[nodiscard]] bool has(std::uint64_t sp) const { return sp > low && sp <= high; }
  };

  // g is at fs:-8 and begins with its stack's bounds (runtime2.go). A stack that has been moved takes its calls along.
  void see(std::uint64_t g) {
    std::uint64_t bounds[2] = {};
    if (g == 0 || !judge_.memory().read(g, bounds, sizeof bounds)) return;
    Stack& known = known_[g];
    if (known.high != 0 && known.high != bounds[1]) judge_.move_stack(g, known.low, known.high, bounds[1] - known.high);
    known = {bounds[0], bounds[1]};
  }
  std::uint64_t stack_of(const user_regs_struct& now) {
    std::uint64_t g = 0;
    if (!judge_.memory().read(now.fs_base - 8, &g, sizeof g)) return 0;
    see(g);
    std::uint64_t found = 0;
    if (g != 0 && known_[g].has(now.rsp))
      found = g;
    else
      for (const auto& [other, stack] : known_)
        if (stack.has(now.rsp)) found = other;
    stacks.insert(found);
    return found;
  }

  static bool switches(std::string_view name) {
    for (const std::string_view one :
         {"runtime.systemstack", "runtime.asmcgocall", "runtime.mcall", "runtime.morestack"})
      if (name == one || (name.starts_with(one) && name.substr(one.size()).starts_with(".abi"))) return true;
    return false;
  }
  std::uint64_t called_on(const user_regs_struct& now) {
    const std::uint64_t stack = stack_of(now);
    const auto [begin, name] = symbols_.at(now.rip);
    if (!switches(name)) return stack;
    if (now.rip == begin) entered_on_[begin] = stack;
    const std::uint64_t on = entered_on_.contains(begin) ? entered_on_[begin] : stack;
    see(on);
    return on;
  }

  // gogo leaves its stack for the goroutine's, which it then jumps to: between the two it has no caller. Nor have
  // goexit and mstart, where stacks end.
  bool is_judged(std::uint64_t pc) {
    const auto [begin, name] = symbols_.at(pc);
    return begin != 0 && name != "gogo" && !name.starts_with("runtime.goexit") && !name.starts_with("runtime.mstart.");
  }

  std::optional<StepJudge::Entered> entered(const user_regs_struct& before, const user_regs_struct& now) {
    const auto [begin, name] = symbols_.at(now.rip);
    const std::string_view from = symbols_.at(before.rip).second;
    std::uint64_t top = 0;
    if (begin != now.rip || !judge_.memory().read(now.rsp, &top, sizeof top)) return std::nullopt;
    const bool is_injected = from.starts_with("runtime.sigreturn") &&
                             (name.starts_with("runtime.asyncPreempt") || name.starts_with("runtime.sigpanic"));
    const bool is_new = from == "gogo" && symbols_.at(top).second.starts_with("runtime.goexit");
    if (!is_injected && !is_new) return std::nullopt;
    injected += is_injected ? 1 : 0;
    return StepJudge::Entered{{now.rsp, top, now.rsp + 8, test::registers_of(now)}};
  }

  // From time to time all callers that are known, over the stacks that were left.
  std::string whole_stack(const user_regs_struct& now) {
    if (++asked_ % 64 != 0) return {};
    std::vector<std::uint64_t> truth;
    std::uint64_t on = called_on(now);
    for (unsigned switched = 0; switched < 3; ++switched) {
      const auto& calls = judge_.calls_on(on);
      std::uint64_t next = 0;
      for (auto call = calls.rbegin(); call != calls.rend() && next == 0; ++call) {
        truth.push_back(call->pc);
        const auto [begin, name] = symbols_.at(call->pc);
        if (switches(name) && entered_on_.contains(begin) && entered_on_[begin] != on) next = entered_on_[begin];
      }
      if (next == 0) break;
      on = next;
      see(on);
      ++crossed;
    }
    ++whole;
    StackWalker walker(judge_.target().space, test::registers_of(now));
    bool executes = false;
    for (const std::uint64_t pc : truth) {
      const std::uint64_t from = walker.frame().pc().value();
      executes |= symbols_.at(from).second == "runtime.execute";
      if (!walker.step()) {
        // The goroutine that was left for good is not the thread's any more.
        const std::string_view name = symbols_.at(from).second;
        const bool ends = walker.end_reason() == WalkEnd::kComplete && switches(name);
        executed += ends && executes ? 1 : 0;
        return ends ? "" : fmt::format("whole stack: after {}: {}", name, walker.error().text());
      }
      if (walker.frame().pc().value() != pc)
        return fmt::format("whole stack: {:#x}, not {:#x} after {}", walker.frame().pc().value(), pc,
                           symbols_.at(from).second);
    }
    return {};
  }

  StepJudge& judge_;
  GoSymbols symbols_;
  std::map<std::uint64_t, Stack> known_;
  std::map<std::uint64_t, std::uint64_t> entered_on_;
  std::size_t asked_ = 0;
};

// Go sends a thread another signal to preempt it only when the one before has come: one that is lost stops the program
// for good, at the collector's next wait for that thread. So a signal that a thread has stopped for is always given to
// it in the end, whether it stops in a step, while it is being seized, or while it is let go.
struct Stopped {
  pid_t thread = 0;  // 0: none
  int signal = 0;    // that it has stopped for and not got
};

// Until a thread that is traced stops, whatever signals come here.
Stopped wait_for_stop(pid_t thread) {
  for (unsigned interrupted = 0; interrupted < 100; ++interrupted) {
    int status = 0;
    if (::waitpid(thread, &status, __WALL) == thread) {
      if (!WIFSTOPPED(status)) return {};
      return {thread, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status)};
    }
    if (errno != EINTR) return {};
  }
  return {};
}

// What each thread of the process is at, for messages.
std::string states_of(pid_t pid) {
  std::string states;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    const std::string stat = os::read_proc_file((entry.path() / "stat").string());
    const std::size_t state = stat.rfind(')');
    if (state != std::string::npos) states += stat.substr(0, state + 3) + "; ";
  }
  return states;
}

// One of those that run, another one each time.
Stopped seize_running_thread(pid_t pid, std::size_t turn) {
  for (unsigned attempt = 0; attempt < 2000; ++attempt, ::usleep(1000)) {
    std::vector<pid_t> running;
    for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
      const std::string stat = os::read_proc_file((entry.path() / "stat").string());
      const std::size_t name_end = std::min(stat.rfind(')'), stat.size());
      if (stat.substr(name_end, 3) == ") R") running.push_back(std::stoi(entry.path().filename().string()));
    }
    if (running.empty()) continue;
    const pid_t thread = running[turn % running.size()];
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0 ||
        ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0)
      continue;
    if (const Stopped stopped = wait_for_stop(thread); stopped.thread != 0) return stopped;
  }
  return {};
}

// Is there a trap among the signals that the stopped thread has not seen yet? Others may have come before it.
bool has_pending_trap(pid_t thread) {
  siginfo_t pending[32] = {};
  const __ptrace_peeksiginfo_args all = {0, 0, static_cast<std::int32_t>(std::size(pending))};
  const long count = ::ptrace(PTRACE_PEEKSIGINFO, thread, &all, pending);
  return std::any_of(pending, pending + std::max(count, 0L), [](const auto& info) { return info.si_signo == SIGTRAP; });
}

// Where it waits in a step, the trap at that step's end must not reach it any more: it would end the program.
void release(StepJudge& judge, pid_t thread) {
  Stopped stopped{thread, judge.take_pending_signal()};
  user_regs_struct now{};
  if (::ptrace(PTRACE_GETREGS, thread, nullptr, &now) != 0) {
    ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    stopped = wait_for_stop(thread);
    if (stopped.thread == 0) return;
    if (has_pending_trap(thread)) {
      if (::ptrace(PTRACE_CONT, thread, nullptr, stopped.signal) != 0) return;
      stopped = wait_for_stop(thread);
    }
    if (stopped.thread == 0 || ::ptrace(PTRACE_GETREGS, thread, nullptr, &now) != 0) return;
  }
  judge.finish_step(now);
  ::ptrace(PTRACE_DETACH, thread, nullptr, stopped.signal);
}

// The program's own table, for others' rules.
class GoTable {
 public:
  static std::unique_ptr<GoTable> open(const std::string& program) {
    auto file = MappedFile::open(program);
    const auto image = file ? image::ElfImage::parse(file->bytes()) : Failure(file.error());
    const auto table = image ? go::find_table(*image) : Failure(image.error());
    return table ? std::unique_ptr<GoTable>(new GoTable(std::move(*file), *image, *table)) : nullptr;
  }
  [[nodiscard]] test::PeerCaller caller(const Memory& memory, const user_regs_struct& now) {
    const auto function = map_.function_at(now.rip);
    if (!function) return std::nullopt;
    const auto [known, is_new] = files_.try_emplace(function->begin);
    if (is_new) (void)names_.at(function->begin, [&](const go::Place& place) { known->second = place.file; });
    return test::otel_go(memory, map_, known->second, now);
  }

 private:
  GoTable(MappedFile file, const image::ElfImage& image, const go::Table& table)
      : file_(std::move(file)), map_(table), names_(map_, image) {}

  MappedFile file_;
  go::CodeMap map_;
  go::Names names_;
  std::map<std::uint64_t, std::string_view> files_;  // of each function's begin
};

struct Way {
  const char* name;
  const char* debug;  // GODEBUG
  std::size_t instructions;
  std::size_t functions;  // met at least in a whole run
};

class GoSteps : public ::testing::TestWithParam<Way> {};

TEST_P(GoSteps, EveryInstructionOfGoHasItsCaller) {
  if (const std::string why = test::make_go_program("steps"); !why.empty()) GTEST_SKIP() << why;
  const std::string path = test::kGoFolder + "/steps";
  const test::ChildProgram program({path}, test::kGoFolder + "/steps.out", STDOUT_FILENO,
                                   {{"GODEBUG", GetParam().debug}});
  ::usleep(200'000);
  StepJudge judge(program.pid());
  GoWays ways(judge, path);
  const auto table = GoTable::open(path);
  ASSERT_TRUE(table);
  judge.add_peer("OTel's rule", [&](const user_regs_struct& now) { return table->caller(judge.memory(), now); });
  const test::Alarms alarms(500'000);
  const std::size_t most = GetParam().instructions * (test::whole() ? 20 : 1);
  // A while here and a while there: the collector's loops are long.
  constexpr std::size_t kStretch = 1500;
  constexpr std::size_t kFewestFunctions = 10;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(test::whole() ? 170 : 8);
  const auto goes_on = [&] {  // longer where a busy machine has let it see next to nothing
    const auto now = std::chrono::steady_clock::now();
    return now < end || (judge.methods.size() < kFewestFunctions && now < end + std::chrono::seconds(60));
  };
  for (std::size_t turn = 0; judge.judged < most && goes_on(); ++turn) {
    const Stopped stopped = seize_running_thread(program.pid(), turn);
    ASSERT_NE(stopped.thread, 0) << states_of(program.pid());
    judge.take_thread(stopped.thread, stopped.signal);
    const std::size_t until = judge.judged + kStretch;
    for (std::size_t steps = 0; steps < 4 * kStretch && judge.judged < until && judge.step(); ++steps) {}
    release(judge, stopped.thread);
    ::usleep(3000);
  }
  ::printf(
      "%zu instructions judged, %zu different ones of %zu functions, on %zu stacks; %zu whole stacks, %zu stacks left "
      "in them; %zu calls by signal handlers; %zu below runtime.execute: %zu wrong\n",
      judge.judged, judge.instructions.size(), judge.methods.size(), ways.stacks.size(), ways.whole, ways.crossed,
      ways.injected, ways.executed, judge.wrong);
  ::printf("%s", judge.peers_text().c_str());
  EXPECT_EQ(judge.wrong, 0U) << judge.first_wrong;
  // How far it gets, and where the program is then, is chance.
  EXPECT_GE(judge.methods.size(), test::whole() ? GetParam().functions : kFewestFunctions);
  EXPECT_GE(ways.crossed, test::whole() ? 1U : 0U);
}

// What is stepped must not push the flag by which it is: popped by a thread that is not traced it ends the program.
[[noreturn, gnu::noinline]] void push_flags() {
  constexpr unsigned long kTrap = 0x100;
  for (;;) {
    unsigned long flags = 0;
    asm volatile("sub $128, %%rsp; pushfq; pop %0; add $128, %%rsp" : "=r"(flags) : : "cc", "memory");  // red zone
    if ((flags & kTrap) != 0) __builtin_trap();
  }
}

TEST(SteppedProgram, PushesNoTrapFlag) {
  const pid_t program = ::fork();
  if (program == 0) push_flags();
  ASSERT_TRUE(test::stop(program));
  StepJudge judge(program);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(judge.step()) << i;
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, GoSteps,
                         ::testing::Values(Way{"by_itself", "asyncpreemptoff=1", 60000, 200},
                                           Way{"preempted", "asyncpreemptoff=0", 40000, 150}),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace windlass
