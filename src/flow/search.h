// The search itself: the ways out of a function from a pc, and the way in from its start. Architecture-neutral, over
// explorer.h's CodeMachine.
#pragma once

#include <algorithm>
#include <optional>

#include "flow/explorer.h"
#include "flow/way_in.h"

namespace windlass::flow {

// Ways out, best first.
enum class Way : std::uint8_t {
  kReturn,      // a return, or a jump to another function for sure, with the calling convention kept
  kOddReturn,   // a return that does not keep it
  kTail,        // a jump to an unknown place with a return address where a call would have put it
  kFrameSetUp,  // the frame that the code sets up, from the registers before
  kNone,
};

struct Found {
  Way way = Way::kNone;
  unsigned calls = 0;
  bool forgot = false;  // more was stored than could be kept
  bool jumped = false;  // to another function, which returns if it keeps the calling convention
  FrameRow row;
};

// What else an exploration has seen.
struct Sights {
  bool halted_behind_call = false;
  bool addresses_frame = false;     // below it by the frame pointer, or makes sp of it; before it changes it
  bool uses_frame_pointer = false;  // before it changes it
  bool writes_frame_pointer = false;
  bool any_code = false;
};

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
    if (!Machine::linkage_stub(work_.code, pc, row)) return false;
    row.begin = pc;
    row.end = pc + 1;
    return source.plausible(row);
  }

  // The row of the frame that the function sets up straight from its start, by the frame pointer: for code too far from
  // there to be followed. Registers that it has not saved by then are not known.
  bool prologue_row(const CodeSource& source, std::uint64_t start, std::uint64_t pc, FrameRow& row);

  // Does the way that in() has found keep a frame record that the frame pointer points to, with sp known besides? Both
  // say then where the frame is.
  [[nodiscard]] bool keeps_frame_record() const { return keeps_frame_record_; }

  // Straight code only, at most `most` instructions.
  bool straight_out(const CodeSource& source, std::uint64_t pc, unsigned most, FrameRow& row);

 private:
  // More need not be in the table, and then anything: where it ends is not looked for.
  static constexpr unsigned kTableEntries = 4;
  static constexpr Architecture kArchitecture = Machine::kArchitecture;
  void begin(const CodeSource& source, std::uint64_t pc) {
    work_.code.start(source);
    work_.visited.start();
    work_.paths.start();
    work_.path.start(pc);
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

  // One instruction; the frame pointer's part in it is noted.
  Flow step(Sights& sights) {
    Path<Machine>& path = work_.path;
    Flow flow = work_.machine.step(work_.code, path);
    if (flow.uses_frame_pointer && !path.own_fp) sights.uses_frame_pointer = true;
    if (flow.addresses_frame && !path.own_fp) sights.addresses_frame = true;
    sights.writes_frame_pointer |= flow.writes_frame_pointer;
    flow.sets_frame_pointer &= !path.own_fp;
    path.own_fp |= flow.writes_frame_pointer;
    return flow;
  }

  // Behind a call, on its way: what it has certainly not kept is unknown.
  void pass_call(std::uint64_t target) {
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
  bool finds_frame_pointer(const ExitView& exit);
  bool leave(Way way, const Value& return_address, bool signal_frame, std::uint64_t pc, Found& found);
  bool leave_by_jump(Way way, std::uint64_t pc, Found& found);
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
  bool all_registers_;
};

// ---- ways out -----------------------------------------------------------------------------------------------------

// In the prologue, between setting a frame pointer (any register) and pushing, a register is pushed by sp and later
// popped by the frame pointer. Both are the same place, which says where the frame pointer points; without that what
// is popped would be taken for something that lies on the stack already.
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

// Hand-written code calls functions of its own with conventions of its own: they leave registers alone that calls need
// not preserve, and what is behind the call relies on it, even for sp. So where sp cannot be told behind calls, those
// called are followed, each from its start to its nearest return. True if one keeps any such register.
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
  typename Path<Machine>::State& entry = work_.saved;
  entry.start();
  if (return_address != Machine::return_from_entry(entry) ||
      state[Registers::sp_number(kArchitecture)] != entry[Registers::sp_number(kArchitecture)])
    return false;
  for (unsigned slot = 0; slot < Machine::kSlots; ++slot)
    if (state[slot].is_initial(slot) && !is_callee_saved(kArchitecture, register_of_slot(slot)))
      callee_->kept |= std::uint64_t{1} << slot;
  return true;
}

template <typename Machine>
bool Search<Machine>::leave(Way way, const Value& return_address, bool signal_frame, std::uint64_t pc, Found& found) {
  Path<Machine>& path = work_.path;
  if (callee_ != nullptr) return way == Way::kReturn && !signal_frame && leave_callee(return_address);
  Value& sp = path.state[Registers::sp_number(kArchitecture)];
  sp_lost_behind_call_ |= path.calls != 0 && (!sp.is_address() || sp.is_symbol());
  if (sp.is_symbol() && return_address.kind == Value::kMemory) {
    // How much is taken off with the return address is computed (V8's functions take their arguments off): where the
    // return address is can be said all the same.
    sp = Value::initial(return_address.reg, return_address.slot + 8);
    if (way == Way::kReturn) way = Way::kOddReturn;
  }
  const ExitView exit{&path.state[0], Machine::kSlots,    return_address, path.calls,
                      signal_frame,   path.signed_return, all_registers_};
  if (way == Way::kReturn && !signal_frame && !all_registers_ && !keeps_convention(kArchitecture, exit))
    way = Way::kOddReturn;
  if (finds_frame_pointer(exit)) return true;
  if (way >= found.way) return false;
  FrameRow& row = work_.row;
  if (!make_row(kArchitecture, exit, pc, row) || !work_.code.source().plausible(row)) return false;
  found.row = row;
  found.way = way;
  found.calls = path.calls;
  found.forgot = path.state.forgot();
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
  const bool is_signed = targets.slot2 < 0;
  const auto size = static_cast<unsigned>(is_signed ? -targets.slot2 : targets.slot2);
  const auto address = static_cast<std::uint64_t>(targets.addend);
  const CodeSource& source = work_.code.source();
  std::uint64_t last = 0;
  for (unsigned i = 0; i < kTableEntries; ++i) {
    std::uint64_t entry = 0;
    if (size > sizeof entry || !source.read(address + std::uint64_t{i} * size, &entry, size)) return;
    if (is_signed && size < 8 && (entry >> (size * 8 - 1) & 1) != 0) entry |= ~std::uint64_t{0} << size * 8;
    const std::uint64_t target =
        size == 8 ? entry : address + static_cast<std::uint64_t>(std::int64_t{targets.slot}) + (entry << targets.reg);
    if (target - at + kNear > 2 * kNear || source.kind(target) == CodeKind::kNoCode) return;
    if (target == last) continue;
    last = path.pc = target;
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
    while (path.pc < pc && work_.machine.step(work_.code, path).kind == Flow::kNext) {}
    if (path.pc != pc) continue;
    work_.saved = path.state;
    return true;
  }
  return false;
}

template <typename Machine>
void Search<Machine>::follow_out(const CodeSource& source, CodeAddress at, unsigned max_calls, Found& found,
                                 Sights& sights) {
  const std::uint64_t pc = at.value();
  begin(source, pc);
  Path<Machine>& path = work_.path;
  path.after_call = at.is_return_address();
  for (bool on = true;; on = false) {
    if (!on) {
      if (work_.paths.empty() || work_.visited.full()) return;
      work_.paths.take(path);
    }
    while (work_.visited.insert(path.pc)) {
      const bool after_call = path.after_call;
      path.after_call = false;
      if (after_call && path.pc != pc && starts_function(path.pc)) break;  // the call never returns
      const Flow flow = step(sights);
      if (flow.kind != Flow::kStop) sights.any_code = true;
      if (flow.sets_frame_pointer) frame_set_up(pc, found);
      if (flow.padding) {
        // Behind a call more likely than not the end of the function.
        if (starts_function(path.pc)) break;
        if (after_call && path.calls < kDoubtful) {
          path.calls = static_cast<std::uint16_t>(path.calls + kDoubtful);
          work_.paths.add(path, work_.visited);
          break;
        }
        continue;
      }
      if (flow.kind == Flow::kNext) continue;
      if (flow.kind == Flow::kJump || flow.kind == Flow::kBranch) {
        if (starts_function(flow.target)) {  // another function's, or this one's again: a tail jump
          if (leave_by_jump(Way::kReturn, pc, found)) return;
          if (flow.kind == Flow::kJump) break;
          continue;
        }
        if (flow.kind == Flow::kBranch) {
          const std::uint64_t next = path.pc;
          path.pc = flow.target;
          work_.paths.add(path, work_.visited);
          path.pc = next;
          if (flow.value.known()) path.state[Registers::sp_number(kArchitecture)] = flow.value;
        } else {
          path.pc = flow.target;
        }
        continue;
      }
      if (flow.kind == Flow::kCall) {
        if (++path.calls > max_calls) break;
        pass_call(flow.target);
        path.after_call = true;
        if (!work_.paths.empty() && work_.paths.fewest_calls() < path.calls) {
          work_.paths.add(path, work_.visited);
          break;
        }
        continue;
      }
      if (flow.kind == Flow::kReturn) {
        if (leave(Way::kReturn, flow.value, false, pc, found)) return;
      } else if (flow.kind == Flow::kSignalReturn) {
        if (leave(Way::kReturn, flow.value, true, pc, found)) return;
      } else if (flow.kind == Flow::kLeave) {
        if (leave_by_jump(Way::kReturn, pc, found)) return;
        if (flow.target != 0 && source.kind(flow.target) != CodeKind::kNoCode) {
          path.pc = flow.target;
          continue;
        }
      } else if (flow.kind == Flow::kJumpTo) {
        sp_lost_behind_call_ |= path.calls != 0 && path.state[Registers::sp_number(kArchitecture)].is_symbol();
        if (flow.value.is_constant()) {
          path.pc = static_cast<std::uint64_t>(flow.value.addend);
          continue;
        }
        if (flow.value.kind == Value::kTableTarget)
          table(flow.value);
        else if (!leave_by_jump(Way::kTail, pc, found) && flow.value.kind == Value::kRegister && flow.value.addend == 0)
          leave(Way::kTail, flow.value, false, pc, found);  // the return address, taken off before
      } else if (flow.kind == Flow::kHalt) {
        sights.halted_behind_call |= after_call;
      }
      break;
    }
  }
}

template <typename Machine>
bool Search<Machine>::straight_out(const CodeSource& source, std::uint64_t pc, unsigned most, FrameRow& row) {
  frame_pointer_at_.reset();
  tables_known_ = false;
  begin(source, pc);
  Sights sights;
  Found found;
  for (unsigned i = 0; i < most; ++i) {
    const Flow flow = step(sights);
    if (flow.kind == Flow::kNext) continue;
    const bool direct = flow.kind == Flow::kJump;
    if (direct && !starts_function(flow.target)) {
      work_.path.pc = flow.target;
      continue;
    }
    bool left = false;
    if (flow.kind == Flow::kReturn) left = leave(Way::kReturn, flow.value, false, pc, found);
    if (flow.kind == Flow::kLeave || direct) left = leave_by_jump(Way::kReturn, pc, found);
    if (!left || found.way != Way::kReturn) return false;
    row = found.row;
    return true;
  }
  return false;
}

// ---- the way in ---------------------------------------------------------------------------------------------------

// The path began at the function's entry: where have its registers got to?
template <typename Machine>
bool Search<Machine>::entry_row(std::uint64_t pc, FrameRow& row) {
  const typename Path<Machine>::State& state = work_.path.state;
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
  return state[base].same_base(cfa) && set_cfa(base, row) &&
         row_but_cfa(work_.path, preserved_slots<Machine>(), pc, row);
}

template <typename Machine>
bool Search<Machine>::prologue_row(const CodeSource& source, std::uint64_t start, std::uint64_t pc, FrameRow& row) {
  constexpr unsigned kMostInstructions = 32;
  frame_pointer_at_.reset();
  begin(source, start);
  const auto& state = work_.path.state;
  const unsigned fp = Registers::fp_number(kArchitecture);
  Sights sights;
  bool set = false;
  for (unsigned i = 0; i < kMostInstructions && work_.path.pc < pc; ++i) {
    const Flow flow = step(sights);
    if (flow.kind != Flow::kNext || (set && flow.writes_frame_pointer)) break;
    set |= flow.sets_frame_pointer;
  }
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
  frame_pointer_at_.reset();
  tables_known_ = false;
  begin(source, start);
  Path<Machine>& path = work_.path;
  Sights sights;
  for (bool on = true;; on = false) {
    if (!on) {
      seen.cut_short |= work_.visited.full() || work_.paths.has_given_up();
      if (work_.paths.empty() || work_.visited.full()) return false;
      work_.paths.take(path);
    }
    for (;;) {
      if (path.pc == pc.value() && (path.after_call || !pc.is_return_address())) {
        seen.arrives = !entry_row(pc.value(), row);
        return !seen.arrives && source.plausible(row);
      }
      if (!work_.visited.insert(path.pc)) break;
      if (path.after_call && starts_function(path.pc)) break;
      path.after_call = false;
      const Flow flow = step(sights);
      if (flow.kind == Flow::kNext) continue;
      if (flow.is_call && path.pc == pc.value() && pc.is_return_address()) {
        // It is to come back all the same: a function that never returns may stand right behind its call.
        (void)Machine::return_from_entry(path.state);
        path.after_call = true;
        continue;
      }
      if (flow.kind == Flow::kCall) {
        ++path.calls;
        pass_call(flow.target);
        path.after_call = true;
        // The way may go on at the address behind, or there may be none: then it is only this return address's.
        if (path.pc == pc.value() && pc.is_return_address()) continue;
        if (!work_.paths.empty() && work_.paths.fewest_calls() < path.calls) {
          work_.paths.add(path, work_.visited);
          break;
        }
        continue;
      }
      const bool direct = flow.kind == Flow::kJump || flow.kind == Flow::kBranch;
      if (direct && flow.kind == Flow::kBranch) {
        const std::uint64_t next = path.pc;
        if (!starts_function(flow.target)) {
          path.pc = flow.target;
          work_.paths.add(path, work_.visited);
        }
        path.pc = next;
        if (flow.value.known()) path.state[Registers::sp_number(kArchitecture)] = flow.value;
        continue;
      }
      if (direct && !starts_function(flow.target)) {
        path.pc = flow.target;
        continue;
      }
      if (flow.kind == Flow::kJumpTo && flow.value.is_constant()) {
        path.pc = static_cast<std::uint64_t>(flow.value.addend);
        continue;
      }
      if (flow.kind == Flow::kJumpTo && flow.value.kind == Value::kTableTarget) {
        table(flow.value);
        seen.cut_short = true;  // these are the first ones
      } else {
        seen.anywhere |= flow.kind == Flow::kJumpTo || (flow.kind == Flow::kLeave && flow.target == 0);
      }
      if (flow.kind == Flow::kJump || flow.kind == Flow::kLeave) seen.jump = flow.target;
      break;
    }
  }
}

}  // namespace windlass::flow
