// The search itself: the ways out of a function from a pc, and the way in from its start. Architecture-neutral, over
// explorer.h's CodeMachine.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "flow/explorer.h"
#include "flow/found.h"
#include "flow/way_in.h"

namespace windlass::flow {

template <typename Machine>
class Search {
 public:
  static constexpr unsigned kDoubtful = 100;  // a call with padding behind it counts as so many

  // all_registers: of the rows that out() finds (ExitView).
  explicit Search(Workspace<Machine>& work, bool all_registers = false) : work_(work), all_registers_(all_registers) {}

  // Follows the code at `pc` until a plausible Way::kReturn. `max_calls`: how many calls may be passed.
  void out(const CodeSource& source, CodeAddress pc, unsigned max_calls, Found& found, Sights& sights) {
    frame_pointer_at_.reset();
    tables_known_ = false;
    callee_count_ = 0;
    sp_lost_behind_call_ = false;
    std::uint64_t sp = 0;
    follows_now_ = source.register_value(Registers::sp_number(kArchitecture), sp);
    follow_out(source, pc, max_calls, found, sights);
    const bool needed = all_registers_ ? found.calls != 0 : found.way != Way::kReturn && sp_lost_behind_call_;
    const bool callees = !frame_pointer_at_ && needed && follow_callees(source);
    const bool tables = !frame_pointer_at_ && found.way != Way::kReturn && max_calls != 0 && !pc.is_return_address() &&
                        table_before(source, pc.value());
    if (!frame_pointer_at_ && !tables && !callees) return;
    found = {};
    sights = {};
    tables_known_ = tables;
    follow_out(source, pc, max_calls, found, sights);
  }

  // Where else the ways from a function's start lead: to another function by a jump, or to where a register says.
  struct Exits {
    std::uint64_t jump = 0;
    bool anywhere = false;
    bool cut_short = false;  // not all were followed
    bool arrives = false;    // a way leads to `pc`, but no row says what it has kept
  };
  // Follows the code from the function's start to `pc`: the row there. False if no path comes by.
  bool in(const CodeSource& source, std::uint64_t start, CodeAddress pc, FrameRow& row, Exits* exits = nullptr);

  // A stub of the linker's, whose end lies in the dynamic linker: by what it looks like.
  bool linkage_stub(const CodeSource& source, std::uint64_t pc, FrameRow& row) {
    work_.code.start(source);
    return Machine::linkage_stub(work_.code, pc, row) && source.plausible(row);
  }

  // The row of the frame that the function sets up straight from its start, by the frame pointer: for code too far from
  // there to be followed. Registers that it has not saved by then are not known.
  bool prologue_row(const CodeSource& source, std::uint64_t start, std::uint64_t pc, FrameRow& row);

  // Does the way that in() has found keep a frame record that the frame pointer points to, with sp known besides? Both
  // say then where the frame is.
  [[nodiscard]] bool keeps_frame_record() const { return keeps_frame_record_; }
  // The row that in() has found, by that frame record. It holds even if what was called has taken off its arguments.
  [[nodiscard]] bool by_frame_record(FrameRow& row) const {
    return keeps_frame_record_ && set_cfa(Registers::fp_number(kArchitecture), row);
  }

  // Straight code only, at most `most` instructions.
  bool straight_out(const CodeSource& source, std::uint64_t pc, unsigned most, FrameRow& row);

 private:
  // More need not be in the table, and then anything: where it ends is not looked for.
  static constexpr unsigned kTableEntries = 4;
  static constexpr Architecture kArchitecture = Machine::kArchitecture;
  void begin(const CodeSource& source, std::uint64_t pc) {
    work_.start(source, pc);
    work_.visited.start();
    work_.paths.start();
    if (frame_pointer_at_)
      work_.path.state[frame_pointer_at_->reg] =
          Value::initial(Registers::sp_number(kArchitecture), frame_pointer_at_->offset);
    if (tables_known_)
      for (unsigned i = 0; i < Machine::kSlots; ++i) {
        const Value& value = work_.saved[i];
        if (value.known() && !value.is_address()) work_.path.state[i] = value;
      }
    Machine::look_back(work_.code, work_.path);
  }

  // Without what has been found out for another place.
  void begin_anew(const CodeSource& source, std::uint64_t pc) {
    frame_pointer_at_.reset();
    tables_known_ = false;
    begin(source, pc);
  }

  // One instruction; the frame pointer's part in it is noted.
  Flow step(Sights& sights) {
    Path<Machine>& path = work_.path;
    Flow flow = work_.machine.step(work_.code, path);
    if (flow.uses_frame_pointer && !path.own_fp) sights.uses_frame_pointer = true;
    if (flow.addresses_frame && !path.own_fp) sights.addresses_frame = true;
    sights.writes_frame_pointer |= flow.writes_frame_pointer;
    sights.any_code |= flow.kind != Flow::kStop;
    flow.sets_frame_pointer &= !path.own_fp;
    path.own_fp |= flow.writes_frame_pointer;
    return flow;
  }

  // All ways from where begin() has put the path, those behind the fewest calls first. `arrive()` is asked in front of
  // an instruction, `behind(flow, after_call)` behind one.
  template <typename Arrive, typename Behind>
  void follow_ways(Sights& sights, Arrive&& arrive, Behind&& behind) {
    Path<Machine>& path = work_.path;
    const std::uint64_t start = path.pc;
    bool after_call = false;
    const auto goes_on = [&] {
      if (const Go go = arrive(); go != Go::kOn) return go;
      if (!work_.visited.insert(path.pc)) return Go::kNextWay;
      after_call = std::exchange(path.after_call, false);
      const bool never_returns = after_call && path.pc != start && starts_function(path.pc);
      return never_returns ? Go::kNextWay : Go::kOn;
    };
    const auto run = [&] {
      const Flow flow = step(sights);
      return behind(flow, after_call);
    };
    const auto next_way = [&] {
      if (work_.paths.empty()) return false;
      work_.paths.take(path);
      return true;
    };
    std::uint32_t budget = VisitedSet::kMost;
    (void)follow(budget, goes_on, run, next_way);
  }
  [[gnu::always_inline]] Go take(const Flow& flow);

  // Behind a call, on its way: what it has certainly not kept is unknown.
  void pass_call(std::uint64_t target) {
    ++work_.path.calls;
    work_.path.after_call = true;
    const auto* const known = std::find_if(callees_, callees_ + callee_count_,
                                           [target](const Callee& callee) { return callee.target == target; });
    const bool is_known = known != callees_ + callee_count_;
    if (!is_known && target != 0 && callee_count_ < kMostCallees) callees_[callee_count_++] = {target, 0};
    Machine::forget_by_call(work_.path.state, is_known ? known->kept : 0);
  }
  bool follow_callees(const CodeSource& source);
  bool leave_callee(const Value& return_address);

  // What follows from the path's exit: true to stop the search.
  // Executes what stands before `pc`, from where a jump table is loaded, for the constants it leaves in registers.
  bool table_before(const CodeSource& source, std::uint64_t pc);
  void follow_out(const CodeSource& source, CodeAddress at, unsigned max_calls, Found& found, Sights& sights);
  Go pass_padding(bool after_call);
  bool finds_frame_pointer(const ExitView& exit);
  bool leave(Way way, const Value& return_address, bool signal_frame, std::uint64_t pc, Found& found,
             bool described = false);
  bool leave_by_jump(Way way, std::uint64_t pc, Found& found);
  bool leave_into(const FrameRow& inside, std::uint64_t pc, Found& found);
  bool enters_function(std::uint64_t target, std::uint64_t pc, Found& found);
  std::uint64_t target_now(const Value& target);
  void frame_set_up(std::uint64_t pc, Found& found);
  void table(const Value& targets);
  bool entry_row(std::uint64_t pc, FrameRow& row);
  // CFA by the register `base`, which holds an address of the same frame.
  bool set_cfa(unsigned base, FrameRow& row) const {
    const auto cfa = cfa_by<Machine>(work_.path.state, base);
    if (cfa) row.cfa = *cfa;
    return cfa.has_value();
  }
  [[nodiscard]] bool starts_function(std::uint64_t address) const {
    return work_.code.source().function_start(address) == address;
  }

  Workspace<Machine>& work_;
  // A register that is known to be sp plus this at the pc.
  struct FramePointer {
    unsigned reg;
    std::int64_t offset;
  };
  std::optional<FramePointer> frame_pointer_at_;
  bool tables_known_ = false;  // work_.saved has what table_before found
  // Functions that are called on the way, and the slots of the registers that they keep.
  struct Callee {
    std::uint64_t target;
    std::uint64_t kept;
  };
  static constexpr unsigned kMostCallees = 4;
  Callee callees_[kMostCallees];
  unsigned callee_count_ = 0;
  Callee* callee_ = nullptr;  // the one that is being followed
  bool sp_lost_behind_call_ = false;
  bool keeps_frame_record_ = false;
  bool follows_now_ = false;  // where jumps lead now
  bool all_registers_;
};

// ---- ways out -----------------------------------------------------------------------------------------------------

// In a prologue, after a frame pointer (any register) is set and before the pushes. A register is pushed by sp, and
// later popped by the frame pointer. Both are the same place, which shows where the frame pointer points. Without that,
// the popped value would count as one that was on the stack before.
template <typename Machine>
bool Search<Machine>::finds_frame_pointer(const ExitView& exit) {
  const unsigned sp = Registers::sp_number(kArchitecture);
  if (frame_pointer_at_) return false;
  for (unsigned i = 0; i < exit.count; ++i) {
    const Value& popped = exit.registers[i];
    if (i == popped.reg || popped.kind != Value::kMemory || popped.reg == sp || popped.is_symbol() ||
        !is_callee_saved(kArchitecture, register_of_slot(i)))
      continue;
    work_.path.state.for_each_store([&](const Value& address, const Value& value) {
      if (value.is_initial(i) && address.kind == Value::kRegister && address.reg == sp)
        frame_pointer_at_ = {popped.reg, address.plus(-std::int64_t{popped.slot}).addend};
    });
  }
  return frame_pointer_at_.has_value();
}

// Hand-written code calls own functions with own conventions: these leave registers alone that calls need not preserve.
// The code behind the call relies on that, even for sp. So if sp is not known behind calls, the called functions are
// followed, each from its start to its nearest return. True if one of these keeps such a register.
template <typename Machine>
bool Search<Machine>::follow_callees(const CodeSource& source) {
  bool any = false;
  const unsigned count = callee_count_;
  for (callee_ = callees_; callee_ != callees_ + count; ++callee_) {
    Found found;
    Sights sights;
    follow_out(source, CodeAddress::instruction(callee_->target), 0, found, sights);
    any |= callee_->kept != 0;
  }
  callee_ = nullptr;
  return any;
}

template <typename Machine>
bool Search<Machine>::leave_callee(const Value& return_address) {
  const auto& state = work_.path.state;
  if (!is_left_as_entered<Machine>(state, return_address, work_.saved)) return false;
  for (unsigned slot = 0; slot < Machine::kSlots; ++slot)
    if (state[slot].is_initial(slot) && !is_callee_saved(kArchitecture, register_of_slot(slot)))
      callee_->kept |= std::uint64_t{1} << slot;
  return true;
}

template <typename Machine>
bool Search<Machine>::leave(Way way, const Value& return_address, bool signal_frame, std::uint64_t pc, Found& found,
                            bool described) {
  Path<Machine>& path = work_.path;
  if (callee_ != nullptr) return way == Way::kReturn && !signal_frame && leave_callee(return_address);
  Value& sp = path.state[Registers::sp_number(kArchitecture)];
  sp_lost_behind_call_ |= path.calls != 0 && (!sp.is_address() || sp.is_symbol());
  const bool takes_arguments = sp.is_symbol() && return_address.kind == Value::kMemory;
  if (takes_arguments) {
    // How much is taken off with the return address is computed (V8's functions take their arguments off): where the
    // return address is can be said all the same.
    sp = Value::initial(return_address.reg, return_address.slot + 8);
    if (way == Way::kReturn) way = Way::kOddReturn;
  }
  const ExitView exit{&path.state[0], Machine::kSlots,    return_address, path.calls,
                      signal_frame,   path.signed_return, all_registers_};
  if (way == Way::kReturn && !signal_frame && !described && !all_registers_ && !keeps_convention(kArchitecture, exit))
    way = Way::kOddReturn;
  if (finds_frame_pointer(exit)) return true;
  if (way >= found.way) return false;
  FrameRow& row = work_.row;
  if (!make_row(kArchitecture, exit, pc, row) || !work_.code.source().plausible(row)) return false;
  // Behind a frame record, the caller's frame pointer is known besides.
  if (takes_arguments && return_address.reg == Registers::fp_number(kArchitecture) && return_address.slot == 8)
    (void)row.registers.set(Registers::sp_number(kArchitecture), RegisterRule::undefined());
  if (found.way == Way::kOddReturn && !found.forgot && found.calls < kDoubtful) found.odd = found.row;
  found.row = row;
  found.way = way;
  found.calls = path.calls;
  found.forgot = forgot_what_was_saved<Machine>(path.state, return_address, all_registers_);
  found.jumped = false;
  return way == Way::kReturn;
}

template <typename Machine>
bool Search<Machine>::leave_by_jump(Way way, std::uint64_t pc, Found& found) {
  if (way >= found.way || callee_ != nullptr) return false;  // where a callee goes on nobody has followed
  typename Path<Machine>::State& saved = work_.saved;
  saved = work_.path.state;
  const Value return_address = Machine::return_from_entry(work_.path.state);
  const ExitView exit{&work_.path.state[0], Machine::kSlots, return_address,
                      work_.path.calls,     false,           work_.path.signed_return};
  // A jump within the function has things on the stack that a tail jump has taken off.
  const bool stop =
      (way == Way::kTail || keeps_convention(kArchitecture, exit)) && leave(way, return_address, false, pc, found);
  work_.path.state = saved;
  found.jumped |= stop;
  return stop;
}

// The code makes the frame pointer of sp, having pushed the caller's (or it is just about to be executed, and has been
// pushed before).
template <typename Machine>
void Search<Machine>::frame_set_up(std::uint64_t pc, Found& found) {
  Path<Machine>& path = work_.path;
  if (Way::kFrameSetUp >= found.way || path.calls != 0 || callee_ != nullptr) return;
  work_.saved = path.state;
  const Value return_address = Machine::return_from_frame(path.state);
  if (return_address.known()) leave(Way::kFrameSetUp, return_address, false, pc, found);
  path.state = work_.saved;
}

// The first ways of a jump table.
template <typename Machine>
void Search<Machine>::table(const Value& targets) {
  constexpr std::uint64_t kNear = 1 << 20;
  Path<Machine>& path = work_.path;
  const std::uint64_t at = path.pc;
  const CodeSource& source = work_.code.source();
  std::uint64_t last = 0;
  for (unsigned i = 0; i < kTableEntries; ++i) {
    const auto target = table_target(targets, i, source);
    if (!target || *target - at + kNear > 2 * kNear || source.kind(*target) == CodeKind::kNoCode) return;
    if (*target == last) continue;
    last = path.pc = *target;
    work_.paths.add(path, work_.visited);
  }
}

// Else `jmp reg` of a jump table could not be followed from behind the instruction that loads the table. The nearest
// place that looks like such a load and from where straight code leads here is taken.
template <typename Machine>
bool Search<Machine>::table_before(const CodeSource& source, std::uint64_t pc) {
  constexpr unsigned kFarthest = 40;
  Path<Machine>& path = work_.path;
  work_.code.start(source);
  for (unsigned back = Machine::kInstructionStep; back <= kFarthest; back += Machine::kInstructionStep) {
    if (!Machine::loads_table(work_.code, pc - back)) continue;
    begin(source, pc - back);
    (void)follow_straight(work_, pc, kFarthest);
    if (path.pc != pc) continue;
    work_.saved = path.state;
    return true;
  }
  return false;
}

// Where control goes, as far as the code itself says.
template <typename Machine>
inline Go Search<Machine>::take(const Flow& flow) {
  Path<Machine>& path = work_.path;
  switch (flow.kind) {
    case Flow::kNext: return Go::kOn;
    case Flow::kJump: path.pc = flow.target; return Go::kOn;
    case Flow::kBranch: {
      const std::uint64_t next = path.pc;
      const bool leaves =
          follows_now_ && !flow.value.known();  // checks that fail are generated code's nearest ways out
      path.pc = leaves ? next : flow.target;
      work_.paths.add(path, work_.visited);
      path.pc = leaves ? flow.target : next;
      if (flow.value.known()) path.state[Registers::sp_number(kArchitecture)] = flow.value;
      return Go::kOn;
    }
    case Flow::kCall:
      pass_call(flow.target);
      if (work_.paths.empty() || work_.paths.fewest_calls() >= path.calls) return Go::kOn;
      work_.paths.add(path, work_.visited);
      return Go::kNextWay;
    case Flow::kJumpTo:
      if (flow.value.is_constant()) {
        path.pc = static_cast<std::uint64_t>(flow.value.addend);
        return Go::kOn;
      }
      if (flow.value.kind == Value::kTableTarget) table(flow.value);
      return Go::kNextWay;
    default: return Go::kNextWay;
  }
}

// Behind a call more likely than not the end of the function.
template <typename Machine>
Go Search<Machine>::pass_padding(bool after_call) {
  Path<Machine>& path = work_.path;
  if (starts_function(path.pc)) return Go::kNextWay;
  if (!after_call || path.calls >= kDoubtful) return Go::kOn;
  path.calls = static_cast<std::uint16_t>(path.calls + kDoubtful);
  work_.paths.add(path, work_.visited);
  return Go::kNextWay;
}

template <typename Machine>
void Search<Machine>::follow_out(const CodeSource& source, CodeAddress at, unsigned max_calls, Found& found,
                                 Sights& sights) {
  const std::uint64_t pc = at.value();
  begin(source, pc);
  Path<Machine>& path = work_.path;
  path.after_call = at.is_return_address();
  const bool generated = source.kind(at.lookup()) == CodeKind::kGenerated;
  const auto ended = [](bool is_found) { return is_found ? Go::kEnd : Go::kNextWay; };
  const auto behind = [&](const Flow& flow, bool after_call) {
    if (flow.sets_frame_pointer) frame_set_up(pc, found);
    if (flow.padding) return pass_padding(after_call);
    switch (flow.kind) {
      case Flow::kNext: return Go::kOn;
      case Flow::kJump:
      case Flow::kBranch:
        if (generated && enters_function(flow.target, pc, found)) return Go::kEnd;
        if (!starts_function(flow.target)) break;  // else another function's, or this one's again: a tail jump
        if (leave_by_jump(Way::kReturn, pc, found)) return Go::kEnd;
        return flow.kind == Flow::kJump ? Go::kNextWay : Go::kOn;
      case Flow::kCall:
        if (path.calls >= max_calls) return Go::kNextWay;
        break;
      case Flow::kReturn: return ended(leave(Way::kReturn, flow.value, false, pc, found));
      case Flow::kSignalReturn: return ended(leave(Way::kReturn, flow.value, true, pc, found));
      case Flow::kLeave:
        if (generated && enters_function(flow.target, pc, found)) return Go::kEnd;
        if (leave_by_jump(Way::kReturn, pc, found)) return Go::kEnd;
        if (flow.target == 0 || source.kind(flow.target) == CodeKind::kNoCode) return Go::kNextWay;
        path.pc = flow.target;
        return Go::kOn;
      case Flow::kJumpTo:
        sp_lost_behind_call_ |= path.calls != 0 && path.state[Registers::sp_number(kArchitecture)].is_symbol();
        if (const std::uint64_t target = generated ? target_now(flow.value) : 0; target != 0) {
          if (enters_function(target, pc, found)) return Go::kEnd;
          path.pc = target;
          return Go::kOn;
        }
        if (flow.value.is_constant() || flow.value.kind == Value::kTableTarget) break;
        if (!leave_by_jump(Way::kTail, pc, found) && flow.value.kind == Value::kRegister && flow.value.addend == 0)
          leave(Way::kTail, flow.value, false, pc, found);  // the return address, taken off before
        return Go::kNextWay;
      case Flow::kHalt: sights.halted_behind_call |= after_call; break;
      default: break;
    }
    return take(flow);
  };
  follow_ways(
      sights, [] { return Go::kOn; }, behind);
}

template <typename Machine>
bool Search<Machine>::straight_out(const CodeSource& source, std::uint64_t pc, unsigned most, FrameRow& row) {
  begin_anew(source, pc);
  const Flow last = follow_straight(work_.path, kAnywhere, most, [&] {
    Flow flow = work_.machine.step(work_.code, work_.path);
    if (flow.kind != Flow::kJump || starts_function(flow.target)) return flow;
    work_.path.pc = flow.target;
    return Flow{};
  });
  Found found;
  bool left = false;
  if (last.kind == Flow::kReturn) left = leave(Way::kReturn, last.value, false, pc, found);
  if (last.kind == Flow::kLeave || last.kind == Flow::kJump) left = leave_by_jump(Way::kReturn, pc, found);
  if (!left || found.way != Way::kReturn) return false;
  row = found.row;
  return true;
}

// ---- the way in ---------------------------------------------------------------------------------------------------

// The path began at the function's entry: where have its registers got to?
template <typename Machine>
bool Search<Machine>::entry_row(std::uint64_t pc, FrameRow& row) {
  const auto& state = work_.path.state;
  if constexpr (requires { Machine::has_callers_record(state); }) {
    if (Machine::has_callers_record(state)) {
      keeps_frame_record_ = false;
      Machine::frame_pointer_row(pc, row);
      return state[Registers::fp_number(kArchitecture)].is_initial(Registers::fp_number(kArchitecture));
    }
  }
  const Value cfa = entry_cfa<Machine>();
  unsigned base = Registers::sp_number(kArchitecture);
  if (!state[base].same_base(cfa)) base = Registers::fp_number(kArchitecture);
  for (unsigned i = 0; i < Machine::kSlots && !state[base].same_base(cfa); ++i) base = i;
  keeps_frame_record_ = base == Registers::sp_number(kArchitecture) && has_frame_record<Machine>(state);
  if (!state[base].same_base(cfa) || !set_cfa(base, row) ||
      !row_but_cfa(work_.path, preserved_slots<Machine>(), pc, row))
    return false;
  // With the return address taken off the stack, a frame that is made is the caller's (V8's BaselineOutOfLinePrologue):
  // what its frame pointer will be the way in does not say.
  return kArchitecture != Architecture::kX86_64 || !row.return_address.is(RegisterRule::kInRegister) ||
         !state[Registers::fp_number(kArchitecture)].same_base(cfa);
}

template <typename Machine>
bool Search<Machine>::prologue_row(const CodeSource& source, std::uint64_t start, std::uint64_t pc, FrameRow& row) {
  constexpr unsigned kMostInstructions = 32;
  begin_anew(source, start);
  const auto& state = work_.path.state;
  const unsigned fp = Registers::fp_number(kArchitecture);
  Sights sights;
  bool set = false;
  (void)follow_straight(work_.path, pc, kMostInstructions, [&] {
    Flow flow = step(sights);
    if (set && flow.writes_frame_pointer) flow.kind = Flow::kStop;
    set |= flow.sets_frame_pointer;
    return flow;
  });
  const Value cfa = entry_cfa<Machine>();
  if (!set || !state[fp].same_base(cfa) || !entry_row(pc, row) || !set_cfa(fp, row)) return false;
  for (unsigned i = 0; i < Machine::kSlots; ++i) {
    const RegisterNumber reg = register_of_slot(i);
    if (!is_callee_saved(kArchitecture, reg)) continue;
    const RegisterRule* rule = row.registers.find(reg);
    const bool saved = rule != nullptr && rule->is(RegisterRule::kAtCfa);
    if (!saved && !row.registers.set(reg, RegisterRule::undefined())) return false;
  }
  return row.return_address.is(RegisterRule::kAtCfa);
}

template <typename Machine>
bool Search<Machine>::in(const CodeSource& source, std::uint64_t start, CodeAddress pc, FrameRow& row, Exits* exits) {
  Exits none;
  Exits& seen = exits != nullptr ? *exits : none;
  begin_anew(source, start);
  Path<Machine>& path = work_.path;
  const auto is_behind = [&] { return path.pc == pc.value() && pc.is_return_address(); };
  bool is_right = false;
  const auto arrive = [&] {
    if (path.pc != pc.value() || (pc.is_return_address() && !path.after_call)) return Go::kOn;
    seen.arrives = !entry_row(pc.value(), row);
    is_right = !seen.arrives && (source.plausible(row) || (by_frame_record(row) && source.plausible(row)));
    return Go::kEnd;
  };
  const auto behind = [&](const Flow& flow, bool) {
    switch (flow.kind) {
      case Flow::kNext: return Go::kOn;
      case Flow::kJump:
      case Flow::kBranch:
        if (flow.is_call && is_behind()) {
          // It is to come back all the same: a function that never returns may stand right behind its call.
          (void)Machine::return_from_entry(path.state);
          path.after_call = true;
          return Go::kOn;
        }
        if (!starts_function(flow.target)) break;
        if (flow.kind == Flow::kBranch) return Go::kOn;
        seen.jump = flow.target;
        return Go::kNextWay;
      case Flow::kCall:
        if (!is_behind()) break;
        // The way may go on at the address behind, or there may be none: then it is only this return address's.
        pass_call(flow.target);
        return Go::kOn;
      case Flow::kJumpTo:
        seen.cut_short |= flow.value.kind == Value::kTableTarget;  // the first ones are taken
        seen.anywhere |= flow.value.kind != Value::kTableTarget && !flow.value.is_constant();
        break;
      case Flow::kLeave:
        seen.anywhere |= flow.target == 0;
        seen.jump = flow.target;
        break;
      default: break;
    }
    return take(flow);
  };
  Sights sights;
  follow_ways(sights, arrive, behind);
  seen.cut_short |= work_.visited.full() || work_.paths.has_given_up();
  return is_right;
}

}  // namespace windlass::flow

#include "flow/search_jumps.h"
