// Where the jumps of generated code lead: into the middle of a function that unwind information describes, or where
// registers and memory say now. Part of search.h, which includes this file.
#pragma once

#include <algorithm>

#include "flow/search.h"

namespace windlass::flow {

// At an instruction in the middle of a function, whose row there is `inside`: the function's caller is the path's.
template <typename Machine>
bool Search<Machine>::leave_into(const FrameRow& inside, std::uint64_t pc, Found& found) {
  if (callee_ != nullptr || !inside.cfa.is(CfaRule::kRegister) || !inside.return_address.is(RegisterRule::kAtCfa))
    return false;
  Path<Machine>& path = work_.path;
  auto& state = path.state;
  const unsigned base = Registers::slot_of(kArchitecture, inside.cfa.reg());
  if (base >= Machine::kSlots) return false;
  const Value cfa = state[base].plus(inside.cfa.offset());
  if (!cfa.is_address() || cfa.is_symbol()) return false;
  work_.saved = state;
  const unsigned calls = path.calls;
  for (unsigned slot = 0; slot < Machine::kSlots; ++slot) {
    const RegisterNumber reg = register_of_slot(slot);
    const RegisterRule* rule = inside.registers.find(reg);
    const bool saved = rule != nullptr && rule->is(RegisterRule::kAtCfa);  // else the generated code may use it
    state[slot] = saved ? work_.saved.load(cfa.plus(rule->offset()), 8) : Value();
  }
  const Value return_address = work_.saved.load(cfa.plus(inside.return_address.offset()), 8);
  state[Registers::sp_number(kArchitecture)] = cfa;
  ++path.calls;  // what the function does next nobody has followed
  const bool stop = leave(Way::kReturn, return_address, false, pc, found, true);
  found.entered |= stop;
  state = work_.saved;
  path.calls = static_cast<std::uint16_t>(calls);
  return stop;
}

// Does generated code leave by a jump to `target`, in the middle of a function? The way ends there.
template <typename Machine>
bool Search<Machine>::enters_function(std::uint64_t target, std::uint64_t pc, Found& found) {
  const CodeSource& source = work_.code.source();
  return source.inside_function(target, work_.row) && leave_into(FrameRow(work_.row), pc, found);
}

// Where a jump of generated code leads, by the registers at the pc and memory as they are; 0: not known.
template <typename Machine>
std::uint64_t Search<Machine>::target_now(const Value& target) {
  if (target.is_constant()) return static_cast<std::uint64_t>(target.addend);
  const CodeSource& source = work_.code.source();
  const auto value = present_value(target, source);
  if (!value || source.kind(*value) == CodeKind::kNoCode) return 0;
  work_.path.calls = std::max<std::uint16_t>(work_.path.calls, 1);  // the jump may lead elsewhere another time
  return *value;
}

}  // namespace windlass::flow
