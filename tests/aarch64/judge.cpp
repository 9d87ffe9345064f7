#include "aarch64/judge.h"

#include <algorithm>
#include <cstdio>

#include "aarch64/guest_space.h"
#include "aarch64/kernel_stack.h"

namespace windlass::aarch64_judge {
namespace {

constexpr std::uint32_t kSvc = 0xd4000001;
constexpr std::uint64_t kSigaltstack = 132, kRtSigaction = 134, kRtSigreturn = 139, kMunmap = 215, kMmap = 222,
                        kMprotect = 226;
constexpr const char* kEnds[] = {
#define WINDLASS_END_TEXT(name, text) text,
    WL_ENDS(WINDLASS_END_TEXT)
#undef WINDLASS_END_TEXT
};
constexpr RegisterNumber kPc = 32, kFirstSavedVector = 72;

// GDB's signal numbers where they are not Linux's (gdb/include/gdb/signals.def).
int linux_signal(int gdb) {
  switch (gdb) {
    case 10: return 7;   // SIGBUS
    case 30: return 10;  // SIGUSR1
    case 31: return 12;  // SIGUSR2
    case 20: return 17;  // SIGCHLD
    default: return gdb;
  }
}

// ldxr, ldaxr and their pairs; stxr, stlxr likewise (C4.1.66, "Load/store exclusive"); casp has the same first bits.
bool is_exclusive(std::uint32_t word, bool load) {
  const bool swaps = (word >> 21 & 1) != 0 && word >> 31 == 0;
  return (word & 0x3fc0'0000) == (load ? 0x0840'0000u : 0x0800'0000u) && !swaps;
}

// May it write one of d8-d15? Loads and stores with V set, and all of data processing for vectors (Arm ARM C4.1); up to
// four registers from the first named.
bool may_write_saved_vector(std::uint32_t word) {
  if ((word >> 26 & 3) != 3) return false;
  const unsigned first = word & 31;
  const unsigned second = word >> 10 & 31;
  return (first >= 5 && first <= 15) || (second >= 8 && second <= 15);
}

Registers registers_of(const CpuState& state) {
  Registers registers(Architecture::kAArch64);
  for (RegisterNumber i = 0; i < 31; ++i) registers.set(i, state.x[i]);
  for (RegisterNumber i = 0; i < 8; ++i) registers.set(static_cast<RegisterNumber>(kFirstSavedVector + i), state.d[i]);
  registers.set_sp(state.sp);
  registers.set_pc(CodeAddress::instruction(state.pc));
  return registers;
}

Claim claim_of(const Frame& frame) {
  Claim claim{frame.registers.get(kPc), frame.sp(), {}, 0};
  for (unsigned i = 0; i < kSavedRegisters; ++i) {
    const auto number = static_cast<RegisterNumber>(saved_register_dwarf(i));
    claim.saved[i] = frame.registers.get(number);
    claim.known |= static_cast<std::uint32_t>(frame.registers.has(number)) << i;
  }
  return claim;
}

class Run final : ShadowStack::Sink {
 public:
  explicit Run(const Options& options) : options_(options), guest_(stub_), kernel_(stub_), stack_(*this) {}
  Report report;

  void execute();

 private:
  void left(const ShadowFrame& frame, std::uint32_t lost, std::size_t in_transfer, const CpuState* to) override;
  void judge_landing(std::uint64_t at, const Claim& claim, const CpuState* to);
  void after_syscall(const CpuState& from);
  Stop run_exclusive(std::uint64_t pc);
  bool deliver(int signal, CpuState interrupted);
  void judge_here();
  void judge_whole_stack();
  void judge_when_it_lands();
  void count_kernel(const KernelWalk& walk);
  [[nodiscard]] KernelWalk kernel_walk();
  Judgement verdict_here();
  [[nodiscard]] bool is_rewritten(const ShadowFrame& frame) const;

  const Options& options_;
  StubClient stub_;
  GuestSpace guest_;
  KernelStack kernel_;
  ShadowStack stack_;
  std::uint64_t handlers_[65] = {};
};

// A frame of the landing pad's function: as a call that threw returns to it, or at the landing pad.
void Run::judge_landing(std::uint64_t at, const Claim& claim, const CpuState* to) {
  bool right = to != nullptr && claim.sp == to->sp;
  bool is_call = false;
  for (const ShadowFrame& frame : stack_.frames())
    is_call |= frame.caller.pc == claim.pc && frame.caller.sp == claim.sp;
  right = right && (is_call || claim.pc == to->pc);
  for (unsigned i = 0; right && i < kSavedRegisters; ++i)
    right = (claim.known >> i & 1) == 0 || claim.saved[i] == saved_register(*to, i);
  ++(right ? report.landings : report.landings_wrong);
  if (!right) ++report.landing_sites[guest_.name(at)];
}

void Run::left(const ShadowFrame& frame, std::uint32_t lost, std::size_t in_transfer, const CpuState* to) {
  for (const auto& [at, claim] : frame.landings) judge_landing(at, claim, to);
  const std::size_t counted = frame.judgements.size() - in_transfer;
  for (std::size_t i = 0; i < frame.judgements.size(); ++i) {
    Judgement judgement = frame.judgements[i];
    if (i >= counted) {  // still the caller that a plain return has, or already the one that it is left for
      if (judgement.verdict == Verdict::kWrong)
        judge_landing(judgement.pc, judgement.got, to);
      else
        ++report.in_transfer;
      continue;
    }
    count_kernel(judgement.kernel);
    judgement.bad_registers &= ~lost;
    if (judgement.verdict == Verdict::kPcSp && judgement.bad_registers == 0) judgement.verdict = Verdict::kExact;
    ++report.judged;
    ++report.count[static_cast<unsigned>(judgement.verdict)];
    ++report.by_origin[judgement.origin & 7];
    if (judgement.verdict == Verdict::kExact) continue;
    Site& site = report.sites[guest_.name(judgement.pc)];
    ++site.count[static_cast<unsigned>(judgement.verdict)];
    site.bad_registers |= judgement.bad_registers;
    site.got_pc = judgement.got.pc;
    site.got_sp = judgement.got.sp;
    site.origin = judgement.origin;
  }
}

void Run::count_kernel(const KernelWalk& walk) {
  if (!walk.asked) return;
  ++report.kernel_stacks;
  report.kernel_frames += walk.frames;
  if (walk.wrong) {
    ++report.kernel_wrong;
    ++report.kernel_ends[guest_.name(walk.at) + " WRONG"];
  } else if (walk.end == WL_END_COMPLETE || walk.end == WL_CONTINUE) {
    ++report.kernel_complete;
  } else {
    ++report.kernel_truncated;
    ++report.kernel_ends[guest_.name(walk.at) + " " + kEnds[walk.end]];
  }
}

Judgement Run::verdict_here() {
  const CpuState& state = stub_.state();
  const ShadowFrame& truth = stack_.top();
  Judgement judgement;
  judgement.pc = state.pc;
  StackWalker walker(guest_.space(), registers_of(state));
  const bool has_caller = walker.step();
  if (truth.kind == ShadowFrame::kBottom) {
    judgement.verdict = has_caller                                  ? Verdict::kEnds
                        : walker.end_reason() == WalkEnd::kComplete ? Verdict::kExact
                                                                    : Verdict::kRefused;
    return judgement;
  }
  if (!has_caller) {
    judgement.verdict = walker.end_reason() == WalkEnd::kComplete ? Verdict::kEnds : Verdict::kRefused;
    return judgement;
  }
  const Frame& caller = walker.frame();
  judgement.origin = static_cast<std::uint8_t>(caller.origin);
  judgement.got = claim_of(caller);
  if (judgement.got.pc != truth.caller.pc || judgement.got.sp != truth.caller.sp) {
    judgement.verdict = Verdict::kWrong;
    return judgement;
  }
  for (unsigned i = 0; i < kSavedRegisters; ++i)
    if ((judgement.got.known >> i & 1) == 0 || judgement.got.saved[i] != saved_register(truth.caller, i))
      judgement.bad_registers |= 1u << i;
  if (judgement.bad_registers != 0) judgement.verdict = Verdict::kPcSp;
  return judgement;
}

bool Run::is_rewritten(const ShadowFrame& frame) const {
  std::uint64_t now = 0;
  return frame.link_slot != 0 && stub_.read(frame.link_slot, &now, sizeof now) && now != frame.link_value;
}

KernelWalk Run::kernel_walk() {
  const auto& frames = stack_.frames();
  std::size_t trusted = frames.size();
  while (trusted > 0 && !is_rewritten(frames[trusted - 1])) --trusted;
  return kernel_.walk(stub_.state(), frames, trusted);
}

// The index of the frame whose caller's frame this is: the caller as it calls, or, at a landing pad, as it goes on.
std::size_t find_landing(const std::vector<ShadowFrame>& frames, std::size_t below, const Frame& claim) {
  for (const bool anywhere : {false, true})
    for (std::size_t i = below; i-- > 1;)
      if (frames[i].caller.sp == claim.sp() && (anywhere || frames[i].caller.pc == claim.registers.get(kPc))) return i;
  return 0;
}

void Run::judge_whole_stack() {
  ++report.stacks;
  StackWalker walker(guest_.space(), registers_of(stub_.state()));
  std::vector<ShadowFrame>& frames = stack_.frames();
  std::uint64_t at = stub_.state().pc;
  bool lands = false;
  std::string guess;  // the first frame that was guessed
  for (std::size_t i = frames.size(); i-- > 1;) {
    if (!walker.step()) {
      ++report.stacks_short;
      ++report.stack_ends[guest_.name(at) + " " + std::string(end_name(walker.end_reason()))];
      return;
    }
    const Frame& frame = walker.frame();
    if (frame.registers.get(kPc) != frames[i].caller.pc || frame.sp() != frames[i].caller.sp) {
      const std::size_t landing = lands ? 0 : find_landing(frames, i + 1, frame);
      if (landing == 0) {
        ++report.stacks_wrong;
        ++report.stack_ends[guest_.name(at) + " wrong by " + std::string(origin_name(frame.origin))];
        return;
      }
      frames[i].landings.emplace_back(stub_.state().pc, claim_of(frame));
      lands = true;
      i = landing;
    }
    if (guess.empty() && frame.certainty >= FrameCertainty::kChained)
      guess = ", a guess from " + guest_.name(at) + " by " + std::string(origin_name(frame.origin));
    at = frames[i].caller.pc;
  }
  if (!walker.step() && walker.end_reason() == WalkEnd::kComplete) {
    ++report.stacks_right;
    report.stacks_landing += lands ? 1 : 0;
    return;
  }
  const bool unproven = walker.end_reason() == WalkEnd::kGuessed || walker.end_reason() == WalkEnd::kChained;
  ++(unproven ? report.stacks_unproven : report.stacks_wrong);
  ++report.stack_ends[guest_.name(at) + " ends with " + std::string(end_name(walker.end_reason())) + guess];
}

// The return address is gone, so where the frame will go is its caller.
void Run::judge_when_it_lands() {
  StackWalker walker(guest_.space(), registers_of(stub_.state()));
  if (!walker.step())
    ++report.landings_refused;
  else
    stack_.top().landings.emplace_back(stub_.state().pc, claim_of(walker.frame()));
}

void Run::judge_here() {
  const bool above = stack_.above_caller(stub_.state());
  const bool rewritten = !above && is_rewritten(stack_.top());
  report.above_caller += above ? 1 : 0;
  report.rewritten += rewritten ? 1 : 0;
  if (above || rewritten)
    judge_when_it_lands();
  else
    stack_.top().judgements.push_back(verdict_here());
  const bool kernel = options_.kernel_stack != 0 && report.steps % options_.kernel_stack == 0;
  if (kernel && !above && !rewritten) stack_.top().judgements.back().kernel = kernel_walk();
  if (!above && options_.whole_stack != 0 && report.steps % options_.whole_stack == 0) judge_whole_stack();
}

// A system call was executed. qemu stops only when the instruction behind it is done, too.
void Run::after_syscall(const CpuState& from) {
  const CpuState& to = stub_.state();
  CpuState behind = to;
  behind.pc = from.pc + 4;
  if (from.x[8] == kRtSigreturn) {
    behind = stack_.interrupted();
    stack_.sigreturn();
  } else if (from.x[8] == kMmap || from.x[8] == kMunmap || from.x[8] == kMprotect) {
    if (guest_.refresh()) kernel_.refresh(guest_);
  }
  std::uint32_t word = 0;
  if (to.pc != behind.pc && stub_.read(behind.pc, &word, sizeof word)) stack_.executed(behind, word, to);
}

// The exclusive monitor does not outlive a stop (linux-user/aarch64/cpu_loop.c). So everything from the load to behind
// the store is one step, and so is a way out between them.
Stop Run::run_exclusive(std::uint64_t pc) {
  constexpr unsigned kMost = 16;
  std::uint32_t words[kMost] = {};
  std::vector<std::uint64_t> stops;
  if (!stub_.read(pc, words, sizeof words)) return stub_.step(true);
  for (unsigned i = 1; i < kMost; ++i) {
    const std::uint64_t at = pc + 4 * i;
    const bool conditional = (words[i] & 0xff00'0000) == 0x5400'0000 || (words[i] & 0x7e00'0000) == 0x3400'0000;
    if (conditional) {  // b.cond, cbz, cbnz
      const auto words_on = static_cast<std::int64_t>(std::uint64_t{words[i]} << 40) >> 45;
      stops.push_back(at + static_cast<std::uint64_t>(words_on * 4));
    }
    if (!is_exclusive(words[i], false)) continue;
    stops.push_back(at + 4);
    return stub_.run_to(stops, 0);
  }
  return stub_.step(true);
}

bool Run::deliver(int gdb_signal, CpuState interrupted) {
  for (;;) {
    const int signal = linux_signal(gdb_signal);
    if (signal < 1 || signal > 64 || handlers_[signal] < 2) {
      report.problem = "signal " + std::to_string(signal) + " without a handler";
      return false;
    }
    const Stop stop = stub_.run_to({&handlers_[signal], 1}, gdb_signal);
    const bool another = stop.kind == Stop::kSignal;  // before the handler's first instruction
    if ((stop.kind != Stop::kTrap && !another) || stub_.state().pc != handlers_[signal]) {
      report.problem = "the handler of signal " + std::to_string(signal) + " was not reached";
      return false;
    }
    ++report.signals;
    stack_.signalled(interrupted, stub_.state());
    kernel_.add_generated(stub_.state().x[30]);
    if (!another) return true;
    interrupted = stub_.state();
    gdb_signal = stop.signal;
  }
}

void Run::execute() {
  if (!stub_.start(options_.sysroot, options_.cpu, options_.command, options_.bind_now)) {
    report.problem = stub_.problem();
    return;
  }
  const std::uint64_t entry = stub_.entry_point();
  if (!options_.from_start && stub_.run_to({&entry, 1}, 0).kind != Stop::kTrap) {
    report.problem = "the program's entry point was not reached";
    return;
  }
  guest_.refresh();
  kernel_.refresh(guest_);
  for (std::uint64_t judged = 0; judged < options_.most; ++judged) {
    judge_here();
    const CpuState from = stub_.state();
    std::uint32_t word = 0;
    if (!stub_.read(from.pc, &word, sizeof word)) {
      report.problem = "no code at pc";
      break;
    }
    const bool call = word == kSvc;
    std::uint64_t action[2] = {};
    if (call && from.x[8] == kRtSigaction && from.x[1] != 0 && from.x[0] < 65 && stub_.read(from.x[1], action, 8))
      handlers_[from.x[0]] = action[0];
    std::uint64_t alternate[3] = {};
    if (call && from.x[8] == kSigaltstack && from.x[0] != 0 && stub_.read(from.x[0], alternate, sizeof alternate))
      stack_.add_alternate_stack(alternate[0], alternate[2]);
    const Stop stop =
        is_exclusive(word, true) ? run_exclusive(from.pc) : stub_.step(call || may_write_saved_vector(word));
    ++report.steps;
    if (stop.kind == Stop::kExited) break;
    if (stop.kind == Stop::kBroken) {
      report.problem = stub_.problem();
      break;
    }
    if (stop.kind == Stop::kTrap || stub_.state().pc != from.pc) {
      if (call)
        after_syscall(from);
      else
        stack_.executed(from, word, stub_.state());
    }
    if (stop.kind == Stop::kSignal && !deliver(stop.signal, stub_.state())) break;
  }
  stack_.finish();
  report.strange = stack_.strange_transfers();
  report.signed_links = stack_.signed_links();
  report.kernel_plain = kernel_.unwinder().plain_steps();
  report.kernel_memo_differences = kernel_.unwinder().memo_differences();
  report.kernel_problems = kernel_.problems();
}

}  // namespace

Report judge(const Options& options) {
  Run run(options);
  run.execute();
  return std::move(run.report);
}

std::string Report::text(std::size_t most_sites) const {
  char line[512];
  std::string all;
  const auto add = [&](const char* format, auto... values) {
    snprintf(line, sizeof line, format, values...);
    all += line;
  };
  using Number = unsigned long long;
  if (!problem.empty()) add("note: %s\n", problem.c_str());
  add("steps %llu judged %llu signals %llu signed %llu  not judged: transfers %llu  strange %llu\n", Number{steps},
      Number{judged}, Number{signals}, Number{signed_links}, Number{in_transfer}, Number{strange});
  add("landings: right %llu wrong %llu refused %llu  (rewritten %llu above-caller %llu)\n", Number{landings},
      Number{landings_wrong}, Number{landings_refused}, Number{rewritten}, Number{above_caller});
  add("EXACT %.4f%%  PCSP-or-better %.4f%%  PCSP %llu WRONG %llu ENDS %llu REFUSED %llu\n", share(Verdict::kExact),
      share(Verdict::kExact) + share(Verdict::kPcSp), Number{count[1]}, Number{count[2]}, Number{count[3]},
      Number{count[4]});
  add("by: cfi %llu code %llu frame-pointer %llu leaf %llu other %llu\n", Number{by_origin[1]}, Number{by_origin[2]},
      Number{by_origin[3]}, Number{by_origin[4]}, Number{by_origin[0] + by_origin[5]});
  add("whole stacks %llu: right %llu unproven %llu short %llu wrong %llu, to a landing pad %llu\n", Number{stacks},
      Number{stacks_right}, Number{stacks_unproven}, Number{stacks_short}, Number{stacks_wrong},
      Number{stacks_landing});
  std::vector<std::pair<std::string, Site>> order(sites.begin(), sites.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const auto total = [](const Site& s) { return s.count[1] + s.count[2] + s.count[3] + s.count[4]; };
    return total(a.second) > total(b.second);
  });
  if (!order.empty()) add("sites that were not exact: %llu\n", Number{order.size()});
  for (std::size_t i = 0; i < order.size() && i < most_sites; ++i) {
    const Site& s = order[i].second;
    add("  %-44s pcsp %llu wrong %llu ends %llu refused %llu  registers %05x by %u got pc %llx sp %llx\n",
        order[i].first.c_str(), Number{s.count[1]}, Number{s.count[2]}, Number{s.count[3]}, Number{s.count[4]},
        s.bad_registers, s.origin, Number{s.got_pc}, Number{s.got_sp});
  }
  add("the profiler's unwinder: stacks %llu frames %llu, complete %llu truncated %llu wrong %llu; by the memo %llu, "
      "different %llu\n",
      Number{kernel_stacks}, Number{kernel_frames}, Number{kernel_complete}, Number{kernel_truncated},
      Number{kernel_wrong}, Number{kernel_plain}, Number{kernel_memo_differences});
  for (const auto& [where, times] : kernel_ends) add("  %s (%llu)\n", where.c_str(), Number{times});
  for (const auto& [where, times] : landing_sites) add("  landing: %s (%llu)\n", where.c_str(), Number{times});
  for (const std::string& text : kernel_problems) add("  %s\n", text.c_str());
  for (const auto& [where, times] : stack_ends) add("  stack: %s (%llu)\n", where.c_str(), Number{times});
  return all;
}

}  // namespace windlass::aarch64_judge
