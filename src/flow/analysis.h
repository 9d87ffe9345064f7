// synthesis.h's functions for one CodeMachine.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>

#include "flow/search.h"

namespace windlass::flow {

constexpr std::uint32_t kMostOfEntryPoint = 48;  // instructions in front of its first call, which leads to main

// Is the way from the program's entry point to `pc` straight, up to and with its first call or jump? There is no
// caller then, whatever is on the stack.
template <typename Machine>
bool starts_program(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  constexpr std::uint64_t kMostBytes = 256;
  if (source.entry_point == 0 || pc.value() - source.entry_point > kMostBytes) return false;
  work.start(source, source.entry_point);
  const Flow last = follow_straight(work, pc.value(), kMostOfEntryPoint);
  return work.path.pc == pc.value() &&
         (last.kind == Flow::kCall || (last.kind == Flow::kNext && !pc.is_return_address()));
}

// The address of main: the first argument of the first call at the program's entry point (glibc's and musl's _start).
// 0: the code does not show it.
template <typename Machine>
std::uint64_t main_function(const CodeSource& source, Workspace<Machine>& work) {
  constexpr unsigned kFirstArgument = Machine::kArchitecture == Architecture::kX86_64 ? x86_64::kRdi : 0;
  if (source.entry_point == 0) return 0;
  work.start(source, source.entry_point);
  const Flow last = follow_straight(work, kAnywhere, kMostOfEntryPoint);
  const Value& argument = work.path.state[kFirstArgument];
  return last.kind == Flow::kCall && argument.is_constant() ? static_cast<std::uint64_t>(argument.addend) : 0;
}

// Does the code at `pc` go straight to a halt?
template <typename Machine>
bool halts(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  constexpr std::uint32_t kMostInstructions = 8;
  work.start(source, pc.value());
  return follow_straight(work, kAnywhere, kMostInstructions).kind == Flow::kHalt;
}

// For code whose start is not known: finds the nearest place before it where a function may start, and from which the
// code leads here by a row that `accepts` accepts. Such a row must have a caller, if `accepts` demands that. Puts the
// row into work.row. `or_here`: the function may start at an interrupted `pc` itself.
template <typename Machine, typename Accepts>
bool way_in_from_unknown_start(const CodeSource& source, CodeAddress pc, Search<Machine>& search,
                               Workspace<Machine>& work, Accepts&& accepts, bool or_here = false) {
  const auto leads_here = [&](std::uint64_t farthest, unsigned most_tries, auto&& may_begin) {
    unsigned tries = 0;
    const std::uint64_t nearest = or_here && !pc.is_return_address() ? 0 : Machine::kInstructionStep;
    for (std::uint64_t back = nearest; back <= farthest && tries < most_tries; back += Machine::kInstructionStep) {
      const std::uint64_t start = pc.value() - back;
      if (!may_begin(start)) continue;
      ++tries;
      if (search.in(source, start, pc, work.row) && accepts(work.row)) return true;
    }
    return false;
  };
  work.code.start(source);
  if (leads_here(1024, 8, [&](std::uint64_t start) { return Machine::may_start_function(work.code, start); }))
    return true;
  if constexpr (requires { Machine::begins_prologue(work.code, pc.value()); })
    return leads_here(4096, 4, [&](std::uint64_t start) { return Machine::begins_prologue(work.code, start); });
  return false;
}

// The row by the nearest place before `pc` where a function may start, whatever the ways out say.
template <typename Machine>
Expected<Synthesis> way_in(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  Search<Machine> search(work);
  if (source.kind(pc.lookup()) == CodeKind::kGenerated ||
      !way_in_from_unknown_start(source, pc, search, work, source.has_caller))
    return fail(ErrorCode::kNotFound, "no way leads here", pc.value());
  Synthesis result;
  result.row = work.row;
  result.keeps_frame_record = search.keeps_frame_record();
  return result;
}

// A function that leaves by a jump to another one keeps the calling convention on one condition. By then it has given
// back the preserved registers that it had saved, and the way in agrees. (Haskell's code saves none.) For starts that
// are not known.
template <typename Machine>
bool gives_back(const CodeSource& source, CodeAddress pc, const Found& found, Search<Machine>& search,
                Workspace<Machine>& work) {
  bool saves = false;
  for (const RegisterEntry entry : found.row.registers)
    saves |= is_callee_saved(Machine::kArchitecture, entry.reg) && entry.rule.is(RegisterRule::kAtCfa);
  const auto same = [&found](const FrameRow& row) { return same_row(Machine::kArchitecture, row, found.row); };
  return saves && (found.way == Way::kReturn || found.way == Way::kTail) && !found.forgot &&
         source.kind(pc.lookup()) != CodeKind::kGenerated && way_in_from_unknown_start(source, pc, search, work, same);
}

// What the ways out of and into the code at a pc come to.
template <typename Machine>
class Analysis {
 public:
  Analysis(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work)
      : source_(source), pc_(pc), work_(work), search_(work) {}

  // The first rule that holds; the last one is for the rest.
  Expected<Synthesis> run() {
    using A = Analysis;
    static constexpr Rule kRules[] = {
        {&A::is_at_entry_point, {.start = Start::kEntryPoint}, "nothing has called the entry point (psABI 3.4.1)"},
        {&A::is_in_linkage_stub, {Certainty::kCertain}, "linkers write all stubs alike (psABI 5.2, AAELF64)"},
        {&A::whole_function_says, {Certainty::kCertain}, "all ways through the function give its frame back"},
        {&A::has_no_code, {.refusal = ErrorCode::kUnreadable}, "no code can be read"},
        {&A::odd_return_comes_first, {Certainty::kLikely}, "by the way in, the other way out leaves two frames"},
        {&A::returns_without_call, {Certainty::kCertain}, "each instruction of the way out is known"},
        {&A::ways_agree, {Certainty::kCertain}, "the way out and the way in say the same"},
        {&A::start_leads_here, {Certainty::kLikely}, "behind a call that never returns may stand anything"},
        {&A::returns, {Certainty::kLikely}, "nothing is known but the way out"},
        {&A::odd_return_has_way_in,
         {Certainty::kLikely},
         "a way out and a way in find the return address in one place"},
        {&A::odd_return_is_whole_functions,
         {Certainty::kCertain},
         "the way out and all ways through the function say the same"},
        {&A::tail_gives_back,
         {Certainty::kLikely},
         "by the way in, the jump out leaves this frame and gives back what was saved"},
        {&A::main_leads_here, {Certainty::kLikely}, "main has a caller, returns or not (ISO C 5.1.2.2.1)"},
        {&A::some_start_leads_here, {Certainty::kGuess}, "a function may start behind the end of another one"},
        {&A::halts_at_once, {.start = Start::kHalts}, "_start halts behind its last call (glibc's start.S)"},
        {&A::halts_behind_call, {.start = Start::kExits}, "what halts behind a call expects no return"},
        {&A::frame_pointer_leads_out, {Certainty::kGuess}, "the code uses its frame pointer, or leaves it alone"},
        {&A::is_lost, {.refusal = ErrorCode::kNotFound}, "the code does not return"},
        {&A::is_as_called, {Certainty::kGuess}, "the return address may be where the call has put it"},
        {&A::has_way_out, {Certainty::kLikely}, "generated code returns; its frame pointer leads nowhere"},
        {nullptr, {Certainty::kGuess}, "a jump to an unknown place, or a frame that is set up"},
    };
    const Rule* const rest = std::prev(std::end(kRules));
    return say(*std::find_if(std::begin(kRules), rest, [this](const Rule& rule) { return (this->*rule.holds)(); }));
  }

 private:
  struct Verdict {
    Certainty certainty = Certainty::kGuess;
    Start start = Start::kNone;
    std::optional<ErrorCode> refusal = std::nullopt;
  };
  // A condition leaves in result_ what it has found.
  struct Rule {
    bool (Analysis::*holds)();
    Verdict verdict;
    const char* because;
  };

  Expected<Synthesis> say(const Rule& rule) {
    if (rule.verdict.refusal) return fail(*rule.verdict.refusal, rule.because, pc_.value());
    result_.certainty = rule.verdict.certainty;
    result_.start = rule.verdict.start;
    return result_;
  }

  bool is_at_entry_point() { return starts_program(source_, pc_, work_); }
  bool is_in_linkage_stub() { return search_.linkage_stub(source_, pc_.value(), result_.row); }
  bool whole_function_says() {
    if (source_.kind(pc_.lookup()) != CodeKind::kFile || source_.function_start(pc_.lookup()) != 0 ||
        !row_of_whole_function())
      return false;
    return take_if(source_.plausible(work_.row));
  }
  bool row_of_whole_function() {
    if (!source_.by_whole_function(source_, pc_, work_.row)) return false;
    work_.row.begin = pc_.value();
    work_.row.end = pc_.value() + 1;
    return true;
  }
  // The ways out are followed here.
  bool has_no_code() {
    constexpr unsigned kMostCalls = 1000;
    search_.out(source_, pc_, kMostCalls, found_, sights_);
    if (!sights_.any_code) return true;
    result_.row = found_.row;
    result_.by_jump = found_.jumped && !gives_back(source_, pc_, found_, search_, work_);
    result_.behind_padding = found_.calls >= Search<Machine>::kDoubtful;
    result_.addresses_frame = sights_.addresses_frame;
    generated_ = source_.kind(pc_.lookup()) == CodeKind::kGenerated;
    start_ = source_.function_start(pc_.lookup());
    return false;
  }
  bool has_way_out() { return found_.way == Way::kReturn; }
  bool has_whole_way_out() { return has_way_out() && !found_.forgot; }
  bool returns_without_call() { return has_whole_way_out() && found_.calls == 0; }
  // The way in is followed here.
  bool ways_agree() {
    FrameRow& row = work_.row;
    leads_here_ = start_ != 0 && start_ <= pc_.lookup() && search_.in(source_, start_, pc_, row);
    if (!leads_here_) return false;
    // Where both find the same frame, the way out goes through this function's end, and what it takes back from there
    // was saved, whichever way led here. (AArch64's compilers save registers one by one where they are needed.)
    const bool by_way_out =
        has_whole_way_out() && Machine::kArchitecture == Architecture::kAArch64 && same_frame(row, found_.row);
    if (!by_way_out) result_.row = row;
    return has_whole_way_out() && same_row(Machine::kArchitecture, row, found_.row);
  }
  bool start_leads_here() { return leads_here_; }
  // Generated code that uses its frame pointer has set it up. For such code the way out is no help: optimised code
  // often leaves only by a deoptimisation, and the bytes behind its calls need not be code.
  bool returns() { return has_way_out() && (found_.entered || !(generated_ && sights_.uses_frame_pointer)); }
  // Helpers of generated code may change registers that functions preserve: PyPy's load the caller's rbp anew. That the
  // way out belongs to this function is said by the way in.
  bool odd_return_has_way_in() { return found_.way == Way::kOddReturn && !found_.forgot && has_way_in_of(found_.row); }
  // Code may keep no registers for its callers: what GraalVM's native images compile at run time.
  bool odd_return_is_whole_functions() {
    if (found_.way != Way::kOddReturn || start_ != 0 || !generated_ || !row_of_whole_function() ||
        !same_frame(work_.row, found_.row))
      return false;
    result_.by_jump = result_.behind_padding = false;
    return take_if(true);
  }
  // A function may leave by jumps through pointers alone: methods that end by calling their base class.
  bool tail_gives_back() {
    return found_.way == Way::kTail && start_ == 0 && gives_back(source_, pc_, found_, search_, work_);
  }
  // PyPy's helper for more memory returns to the loop that has called it. Without memory, the helper leaves the loop's
  // frame, too. That way alone keeps the calling convention: the loop's.
  bool odd_return_comes_first() {
    if (found_.way != Way::kReturn || !found_.odd || same_frame(*found_.odd, found_.row) || !has_way_in_of(*found_.odd))
      return false;
    result_.row = *found_.odd;
    result_.by_jump = result_.behind_padding = false;
    return true;
  }
  bool has_way_in_of(const FrameRow& odd) {
    const auto same = [&odd](const FrameRow& row) { return same_frame(row, odd); };
    return start_ == 0 && generated_ && way_in_from_unknown_start(source_, pc_, search_, work_, same, true);
  }
  bool main_leads_here() {
    if (found_.way != Way::kNone || generated_) return false;
    const std::uint64_t start = main_function(source_, work_);
    return start != 0 && start <= pc_.lookup() && take_if(search_.in(source_, start, pc_, work_.row));
  }
  bool some_start_leads_here() {
    const bool weak = found_.way == Way::kNone || (found_.way != Way::kReturn && found_.calls != 0);
    if (!weak || generated_ || !take_if(way_in_from_unknown_start(source_, pc_, search_, work_, source_.has_caller)))
      return false;
    result_.keeps_frame_record = search_.keeps_frame_record();
    return true;
  }
  bool halts_at_once() { return found_.way == Way::kNone && halts(source_, pc_, work_); }
  bool halts_behind_call() { return found_.way == Way::kNone && sights_.halted_behind_call; }
  // An interpreter's bytecodes leave the frame pointer alone.
  bool frame_pointer_leads_out() {
    const bool holds =
        sights_.uses_frame_pointer || (generated_ && !sights_.writes_frame_pointer && pc_.is_return_address());
    if (!holds || (found_.way != Way::kReturn && found_.way != Way::kNone)) return false;
    if (!sights_.uses_frame_pointer || start_ == 0 || !search_.prologue_row(source_, start_, pc_.value(), work_.row))
      Machine::frame_pointer_row(pc_.value(), work_.row);
    return take_if(source_.plausible(work_.row));
  }
  bool is_lost() {
    if (found_.way != Way::kNone) return false;
    Machine::entry_row(pc_.value(), work_.row);
    return pc_.is_return_address() || !take_if(source_.plausible(work_.row));
  }
  bool is_as_called() { return found_.way == Way::kNone; }

  // The row that has been tried.
  bool take_if(bool holds) {
    if (holds) result_.row = work_.row;
    return holds;
  }

  const CodeSource& source_;
  CodeAddress pc_;
  Workspace<Machine>& work_;
  Search<Machine> search_;
  Found found_;
  Sights sights_;
  Synthesis result_;
  std::uint64_t start_ = 0;  // of the function; 0: not known
  bool generated_ = false;
  bool leads_here_ = false;  // a way from there
};

template <typename Machine>
Expected<Synthesis> analyse(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  return Analysis<Machine>(source, pc, work).run();
}

// Is it worth more than what unwind information says?
inline bool is_likely(const Expected<Synthesis>& synthesis) {
  return synthesis && synthesis->start == Start::kNone && synthesis->certainty <= Certainty::kLikely;
}

template <typename Machine>
Expected<FrameRow> straight_row(const CodeSource& source, std::uint64_t pc, Workspace<Machine>& work) {
  constexpr unsigned kMostInstructions = 32;
  FrameRow row;
  if (Search<Machine>(work).straight_out(source, pc, kMostInstructions, row)) return row;
  return fail(ErrorCode::kNotFound, "no epilogue", pc);
}

template <typename Machine>
Expected<FrameRow> return_row(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  constexpr unsigned kMostCalls = 16;
  Found found;
  Sights sights;
  Search<Machine>(work, true).out(source, pc, kMostCalls, found, sights);
  if (found.way != Way::kReturn || found.forgot) return fail(ErrorCode::kNotFound, "no way to a return", pc.value());
  return found.row;
}

// Does the code at `pc` go straight to a call without having put the link register anywhere? Then that is not where the
// return address is. (No link register: never.)
template <typename Machine>
bool calls_with_link_unsaved(const CodeSource& source, std::uint64_t pc, Workspace<Machine>& work) {
  if constexpr (requires { Machine::kLinkRegister; }) {
    constexpr std::uint32_t kMostInstructions = 32;
    constexpr unsigned kLink = Machine::kLinkRegister;
    work.start(source, pc);
    const auto& state = work.path.state;
    if (follow_straight(work, kAnywhere, kMostInstructions).kind != Flow::kCall || !state[kLink].is_initial(kLink))
      return false;
    Machine::forget_by_call(work.path.state, 0);
    bool kept = false;
    state.for_each_store([&](const Value&, const Value& value) { kept |= value.is_initial(kLink); });
    for (unsigned slot = 0; slot < Machine::kSlots; ++slot) kept |= state[slot].is_initial(kLink);
    return !kept;
  }
  return false;
}

// Is the caller the same by both?
template <typename Machine>
bool agrees(const FrameRow& row, const FrameRow& code) {
  if constexpr (Machine::kArchitecture == Architecture::kAArch64) return same_caller_aarch64(row, code);
  return same_row(Machine::kArchitecture, row, code);
}

template <typename Machine>
std::optional<FrameRow> contradiction(const FrameRow& row, const CodeSource& source, CodeAddress pc,
                                      Workspace<Machine>& work) {
  if (row.signal_frame) return std::nullopt;
  // No callee puts the return address outside its frame: glibc's _dl_runtime_resolve on AArch64 says so, whose CFA
  // leaves out what the linkage table pushed.
  const bool outside = row.return_address.is(RegisterRule::kAtCfa) && row.return_address.offset() >= 0 &&
                       row.cfa.is_at(Registers::sp_number(Machine::kArchitecture));
  if (outside ||
      (!pc.is_return_address() && Machine::is_entry_row(row) && calls_with_link_unsaved(source, pc.value(), work))) {
    const auto synthesis = analyse(source, pc, work);
    if (!is_likely(synthesis)) return std::nullopt;
    return agrees<Machine>(row, synthesis->row) ? std::nullopt : std::optional(synthesis->row);
  }
  if (Machine::is_entry_row(row) && starts_program(source, pc, work)) {
    FrameRow outermost = row;
    outermost.return_address = RegisterRule::undefined();
    return outermost;
  }
  Search<Machine> search(work);
  Found found;
  Sights sights;
  if (pc.is_return_address()) {
    if (!Machine::is_entry_row(row) || source.plausible(row)) return std::nullopt;
    const auto synthesis = analyse(source, pc, work);
    if (!is_likely(synthesis)) return std::nullopt;
    return synthesis->row;
  }
  if (Machine::may_be_epilogue(source, pc.value())) {
    const auto straight = straight_row(source, pc.value(), work);
    if (straight) return agrees<Machine>(row, *straight) ? std::nullopt : std::optional(*straight);
  }
  if (!Machine::is_entry_row(row)) return std::nullopt;
  search.out(source, pc, 0, found, sights);
  if (found.way != Way::kReturn || found.forgot || same_row(Machine::kArchitecture, row, found.row))
    return std::nullopt;
  return found.row;
}

template <typename Machine>
CallSite site_of_call(const CodeSource& source, CodeAddress caller, CodeAddress callee, FrameRow& way_in,
                      Workspace<Machine>& work) {
  constexpr unsigned kMostJumps = 3;
  constexpr std::uint64_t kLongest = 1 << 20;  // that a function is believed to be
  if (source.kind(caller.lookup()) == CodeKind::kNoCode) return CallSite::kNone;
  const bool indirect = Machine::behind_indirect_call(source, caller.value());
  std::uint64_t target = indirect ? Machine::constant_call_target(source, caller.value())
                                  : Machine::direct_call_target(source, caller.value());
  if (target == 0) return indirect ? CallSite::kAnywhere : CallSite::kNone;
  const std::uint64_t start = source.function_start(callee.lookup());
  bool cut_short = false;
  for (unsigned i = 0; target != 0 && i < kMostJumps; ++i) {
    if (target == start) return CallSite::kReaches;
    typename Search<Machine>::Exits exits;
    Search<Machine> search(work);
    if (search.in(source, target, callee, work.row, &exits)) {
      (void)search.by_frame_record(work.row);
      way_in = work.row;
      return indirect ? CallSite::kConstantLeads : CallSite::kLeads;
    }
    if (indirect || exits.anywhere) return CallSite::kAnywhere;
    if (exits.arrives) return CallSite::kMayLead;
    // A function that is known to begin elsewhere is not this one, however long it is.
    cut_short |= exits.cut_short && start == 0 && callee.lookup() - target < kLongest;
    target = exits.jump;
  }
  return cut_short ? CallSite::kMayLead : CallSite::kElsewhere;
}

}  // namespace windlass::flow
