// synthesis.h's functions for one CodeMachine.
#pragma once

#include "flow/search.h"

namespace windlass::flow {

// Is the way from the program's entry point to `pc` straight, up to and with its first call or jump? There is no
// caller then, whatever is on the stack.
template <typename Machine>
bool starts_program(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  constexpr unsigned kMostInstructions = 48;
  constexpr std::uint64_t kMostBytes = 256;
  if (source.entry_point == 0 || pc.value() - source.entry_point > kMostBytes) return false;
  work.code.start(source);
  work.path.start(source.entry_point);
  for (unsigned i = 0; i < kMostInstructions; ++i) {
    if (work.path.pc == pc.value() && !pc.is_return_address()) return true;
    const Flow flow = work.machine.step(work.code, work.path);
    if (flow.kind == Flow::kCall && work.path.pc == pc.value()) return true;
    if (flow.kind != Flow::kNext) return false;
  }
  return false;
}

// main, as the program's entry point hands it to the C library: the first argument of its first call (glibc's and
// musl's _start). 0: it does not say.
template <typename Machine>
std::uint64_t main_function(const CodeSource& source, Workspace<Machine>& work) {
  constexpr unsigned kMostInstructions = 48;
  constexpr unsigned kFirstArgument = Machine::kArchitecture == Architecture::kX86_64 ? x86_64::kRdi : 0;
  if (source.entry_point == 0) return 0;
  work.code.start(source);
  work.path.start(source.entry_point);
  for (unsigned i = 0; i < kMostInstructions; ++i) {
    const Value argument = work.path.state[kFirstArgument];
    const Flow flow = work.machine.step(work.code, work.path);
    if (flow.kind == Flow::kNext) continue;
    const bool is_known = flow.kind == Flow::kCall && argument.is_constant();
    return is_known ? static_cast<std::uint64_t>(argument.addend) : 0;
  }
  return 0;
}

// Does the code at `pc` go straight to a halt?
template <typename Machine>
bool halts(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  constexpr unsigned kMostInstructions = 8;
  work.code.start(source);
  work.path.start(pc.value());
  for (unsigned i = 0; i < kMostInstructions; ++i) {
    const Flow flow = work.machine.step(work.code, work.path);
    if (flow.kind != Flow::kNext) return flow.kind == Flow::kHalt;
  }
  return false;
}

// Code whose start is not known: the nearest place before it where a function may start, from where the code leads here
// by a row that `accepts` does, with a caller where that says. Puts the row into work.row.
template <typename Machine, typename Accepts>
bool way_in_from_unknown_start(const CodeSource& source, CodeAddress pc, Search<Machine>& search,
                               Workspace<Machine>& work, Accepts&& accepts) {
  constexpr std::uint64_t kFarthest = 1024;
  constexpr unsigned kMostTries = 8;
  unsigned tries = 0;
  work.code.start(source);
  for (std::uint64_t back = Machine::kInstructionStep; back <= kFarthest && tries < kMostTries;
       back += Machine::kInstructionStep) {
    const std::uint64_t start = pc.value() - back;
    if (!Machine::may_start_function(work.code, start)) continue;
    ++tries;
    if (search.in(source, start, pc, work.row) && accepts(work.row)) return true;
  }
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

// A function that leaves by a jump to another one keeps the calling convention if it gives back by then what it has
// saved of the registers that calls preserve, as the way in says, too. (Haskell's code saves none.) For a start that is
// not known.
template <typename Machine>
bool gives_back(const CodeSource& source, CodeAddress pc, const Found& found, Search<Machine>& search,
                Workspace<Machine>& work) {
  bool saves = false;
  for (const RegisterEntry entry : found.row.registers)
    saves |= is_callee_saved(Machine::kArchitecture, entry.reg) && entry.rule.is(RegisterRule::kAtCfa);
  const auto same = [&found](const FrameRow& row) { return same_row(Machine::kArchitecture, row, found.row); };
  return saves && found.way == Way::kReturn && !found.forgot && source.kind(pc.lookup()) != CodeKind::kGenerated &&
         way_in_from_unknown_start(source, pc, search, work, same);
}

template <typename Machine>
Expected<Synthesis> analyse(const CodeSource& source, CodeAddress pc, Workspace<Machine>& work) {
  constexpr unsigned kMostCalls = 1000;
  Synthesis result;
  if (starts_program(source, pc, work)) {
    result.start = Start::kEntryPoint;
    return result;
  }
  Search<Machine> search(work);
  if (search.linkage_stub(source, pc.value(), result.row)) {
    result.certainty = Certainty::kCertain;
    return result;
  }
  Found found;
  Sights sights;
  search.out(source, pc, kMostCalls, found, sights);
  if (!sights.any_code) return fail(ErrorCode::kUnreadable, "no code can be read", pc.value());
  result.row = found.row;
  result.by_jump = found.jumped && !gives_back(source, pc, found, search, work);
  result.behind_padding = found.calls >= Search<Machine>::kDoubtful;
  result.addresses_frame = sights.addresses_frame;
  if (found.way == Way::kReturn && found.calls == 0 && !found.forgot) {
    result.certainty = Certainty::kCertain;
    return result;
  }
  // Behind a call that never returns may stand anything: what the way in says is better.
  result.certainty = Certainty::kLikely;
  if (const std::uint64_t start = source.function_start(pc.lookup()); start != 0 && start <= pc.lookup()) {
    FrameRow& row = work.row;
    if (search.in(source, start, pc, row)) {
      const bool returns = found.way == Way::kReturn && !found.forgot;
      if (returns && same_row(Machine::kArchitecture, row, found.row)) result.certainty = Certainty::kCertain;
      // Where both find the same frame, the way out goes through this function's end, and what it takes back from there
      // was saved, whichever way led here. (AArch64's compilers save registers one by one where they are needed.)
      const bool by_way_out = returns && Machine::kArchitecture == Architecture::kAArch64 && same_frame(row, found.row);
      if (!by_way_out) result.row = row;
      return result;
    }
  }
  const bool generated = source.kind(pc.lookup()) == CodeKind::kGenerated;
  // Generated code that uses its frame pointer has set it up (optimised code often leaves by a deoptimisation only, and
  // what is behind its calls need not be code).
  if (found.way == Way::kReturn && !(generated && sights.uses_frame_pointer)) return result;
  // A main that never returns; it has a caller all the same.
  if (found.way == Way::kNone && !generated) {
    const std::uint64_t start = main_function(source, work);
    if (start != 0 && start <= pc.lookup() && search.in(source, start, pc, work.row)) {
      result.row = work.row;
      return result;
    }
  }
  const bool weak = found.way == Way::kNone || (found.way != Way::kReturn && found.calls != 0);
  if (weak && !generated && way_in_from_unknown_start(source, pc, search, work, source.has_caller)) {
    result.row = work.row;
    result.certainty = Certainty::kGuess;
    result.keeps_frame_record = search.keeps_frame_record();
    return result;
  }
  if (found.way == Way::kNone && (sights.halted_behind_call || halts(source, pc, work))) {
    result.start = halts(source, pc, work) ? Start::kHalts : Start::kExits;
    return result;
  }
  FrameRow& pointed = work.row;
  if (const std::uint64_t start = source.function_start(pc.lookup());
      !sights.uses_frame_pointer || start == 0 || !search.prologue_row(source, start, pc.value(), pointed))
    Machine::frame_pointer_row(pc.value(), pointed);
  // An interpreter's bytecodes leave the frame pointer alone.
  const bool pointer_holds =
      sights.uses_frame_pointer || (generated && !sights.writes_frame_pointer && pc.is_return_address());
  if (pointer_holds && (found.way == Way::kReturn || found.way == Way::kNone) && source.plausible(pointed)) {
    result.row = pointed;
    result.certainty = Certainty::kGuess;
    return result;
  }
  if (found.way == Way::kNone) {
    // The return address may still be where the call put it.
    Machine::entry_row(pc.value(), pointed);
    if (pc.is_return_address() || !source.plausible(pointed))
      return fail(ErrorCode::kNotFound, "the code does not return", pc.value());
    result.row = pointed;
  }
  if (found.way != Way::kReturn) result.certainty = Certainty::kGuess;
  return result;
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
    constexpr unsigned kMostInstructions = 32;
    work.code.start(source);
    work.path.start(pc);
    const auto& state = work.path.state;
    for (unsigned i = 0; i < kMostInstructions; ++i) {
      const bool in_place = state[Machine::kLinkRegister].is_initial(Machine::kLinkRegister);
      const Flow flow = work.machine.step(work.code, work.path);
      if (flow.kind == Flow::kNext) continue;
      if (flow.kind != Flow::kCall || !in_place) return false;
      Machine::forget_by_call(work.path.state, 0);
      bool kept = false;
      state.for_each_store([&](const Value&, const Value& value) { kept |= value.is_initial(Machine::kLinkRegister); });
      for (unsigned slot = 0; slot < Machine::kSlots; ++slot) kept |= state[slot].is_initial(Machine::kLinkRegister);
      return !kept;
    }
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
  if (Machine::behind_indirect_call(source, caller.value())) return CallSite::kAnywhere;
  std::uint64_t target = Machine::direct_call_target(source, caller.value());
  if (target == 0) return CallSite::kNone;
  const std::uint64_t start = source.function_start(callee.lookup());
  bool cut_short = false;
  for (unsigned i = 0; target != 0 && i < kMostJumps; ++i) {
    if (target == start) return CallSite::kReaches;
    typename Search<Machine>::Exits exits;
    if (Search<Machine>(work).in(source, target, callee, work.row, &exits)) {
      way_in = work.row;
      return CallSite::kLeads;
    }
    if (exits.arrives) return CallSite::kMayLead;
    if (exits.anywhere) return CallSite::kAnywhere;
    // A function that is known to begin elsewhere is not this one, however long it is.
    cut_short |= exits.cut_short && start == 0 && callee.lookup() - target < kLongest;
    target = exits.jump;
  }
  return cut_short ? CallSite::kMayLead : CallSite::kElsewhere;
}

}  // namespace windlass::flow
