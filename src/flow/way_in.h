// The row of a path that began at a function's entry: where it has kept what the registers held there.
#pragma once

#include <optional>

#include "flow/explorer.h"

namespace windlass::flow {

// The caller's sp by the registers at a function's entry.
template <typename Machine>
[[nodiscard]] constexpr Value entry_cfa() {
  return Value::initial(Registers::sp_number(Machine::kArchitecture), Machine::kEntryCfa);
}

// Behind the return of a path that began at a function's entry: is it to the caller's address, with the caller's sp?
template <typename Machine>
[[nodiscard]] bool is_left_as_entered(const SymbolicState<Machine::kSlots>& state, const Value& return_address,
                                      SymbolicState<Machine::kSlots>& scratch) {
  constexpr unsigned kSp = Registers::sp_number(Machine::kArchitecture);
  scratch.start();
  return return_address == Machine::return_from_entry(scratch) && state[kSp] == scratch[kSp];
}

// The first place on the stack where `what` was saved, if it is still there; ways out find this place, too. Otherwise
// the register that has it, which is `home` if nothing has happened to it. Undefined: lost.
template <typename Machine>
[[nodiscard]] RegisterRule kept_rule(const SymbolicState<Machine::kSlots>& state, const Value& what, unsigned home) {
  constexpr unsigned kSp = Registers::sp_number(Machine::kArchitecture);
  const Value cfa = entry_cfa<Machine>();
  RegisterRule saved = RegisterRule::undefined();
  bool dead = false;
  const auto note = [&](const RegisterRule& place, bool below_sp) {
    if (!saved.is(RegisterRule::kUndefined) && !dead) return;  // a copy of what is saved already
    saved = place;
    dead = below_sp;
  };
  state.for_each_store([&](const Value& address, const Value& value) {
    if (value != what) return;
    if (address.same_base(cfa)) {
      note(rule_at(address, cfa), state[kSp].same_base(cfa) && address.addend < state[kSp].addend);
      return;
    }
    for (unsigned i = 0; i < Machine::kSlots; ++i) {  // a frame realigned, a buffer
      if (!state[i].same_base(address)) continue;
      const RegisterRule place = rule_at(Value::initial(i, address.minus(state[i])), Value());
      if (place.is(RegisterRule::kUndefined)) continue;
      note(place, i == kSp && address.addend < state[kSp].addend);
      return;
    }
  });
  const bool none = saved.is(RegisterRule::kUndefined);
  if (!none && !dead) return saved;
  if (state[home] == what) return RegisterRule::same_value();
  for (unsigned i = 0; i < Machine::kSlots && none; ++i)
    if (state[i] == what) return RegisterRule::in_register(register_of_slot(i));
  return saved;
}

// CFA by the register in slot `base`, which holds an address of the frame the path began with; nothing if no rule has
// room for it.
template <typename Machine>
[[nodiscard]] std::optional<CfaRule> cfa_by(const SymbolicState<Machine::kSlots>& state, unsigned base) {
  const std::int64_t offset = entry_cfa<Machine>().minus(state[base]);
  if (!fits_row(offset)) return std::nullopt;
  return CfaRule::at(register_of_slot(base), static_cast<std::int32_t>(offset));
}

// The slots of the registers that calls preserve.
template <typename Machine>
[[nodiscard]] constexpr std::uint64_t preserved_slots() {
  std::uint64_t slots = 0;
  for (unsigned i = 0; i < Machine::kSlots; ++i)
    if (is_callee_saved(Machine::kArchitecture, register_of_slot(i))) slots |= std::uint64_t{1} << i;
  return slots;
}

// x86-64: does the return address lie where the call has put it?
template <unsigned kSlots>
[[nodiscard]] bool has_return_address(const SymbolicState<kSlots>& state) {
  const Value place = Value::initial(x86_64::kRsp);
  return state.load(place, 8) == place.loaded();
}

// Does the frame pointer point to a frame record: the caller's frame pointer, and the return address behind it?
template <typename Machine>
[[nodiscard]] bool has_frame_record(const SymbolicState<Machine::kSlots>& state) {
  constexpr unsigned kFp = Registers::fp_number(Machine::kArchitecture);
  Value return_address = Value::initial(Registers::sp_number(Machine::kArchitecture)).loaded();
  if constexpr (requires { Machine::kLinkRegister; }) return_address = Value::initial(Machine::kLinkRegister);
  return state[kFp].same_base(entry_cfa<Machine>()) && state.load(state[kFp], 8).is_initial(kFp) &&
         state.load(state[kFp].plus(8), 8) == return_address;
}

// May a store without room have changed what the caller's registers and the return address are taken from?
template <typename Machine>
[[nodiscard]] bool forgot_what_was_saved(const SymbolicState<Machine::kSlots>& state, const Value& return_address,
                                         bool all_registers) {
  bool forgot = state.forgot(return_address);
  for (unsigned i = 0; i < Machine::kSlots; ++i)
    forgot |= (all_registers || is_callee_saved(Machine::kArchitecture, register_of_slot(i))) && state.forgot(state[i]);
  return forgot;
}

// The row at the path's end but for its CFA; of registers it tells of those in `slots`. False: the return address is
// lost.
template <typename Machine>
[[nodiscard]] bool row_but_cfa(const Path<Machine>& path, std::uint64_t slots, std::uint64_t pc, FrameRow& row) {
  constexpr unsigned kSp = Registers::sp_number(Machine::kArchitecture);
  const SymbolicState<Machine::kSlots>& state = path.state;
  const Value cfa = entry_cfa<Machine>();
  row.begin = pc;
  row.end = pc + 1;
  row.signal_frame = false;
  row.return_signed = path.signed_return;
  row.registers.clear();
  row.expressions = shared_expressions();
  if constexpr (Machine::kArchitecture == Architecture::kX86_64) {
    // The return address has been popped, so its slot is dead and may have been overwritten. It is in a register,
    // further down, or where a register points. For example, V8's builtins push it again behind the arguments that they
    // add, and musl's sigsetjmp keeps it in the buffer.
    const bool popped = state[kSp].same_base(cfa) && state[kSp].addend >= cfa.addend;
    row.return_address = !popped && has_return_address(state)
                             ? RegisterRule::at_cfa(-8)
                             : kept_rule<Machine>(state, Value::initial(kSp).loaded(), kSp);
  } else {
    row.return_address = kept_rule<Machine>(state, Value::initial(aarch64::kX30), aarch64::kX30);
    if (row.return_address.is(RegisterRule::kSameValue)) row.return_address = RegisterRule::in_register(aarch64::kX30);
  }
  if (row.return_address.is(RegisterRule::kUndefined)) return false;
  for (unsigned i = 0; i < Machine::kSlots; ++i) {
    if ((slots >> i & 1) == 0) continue;
    const RegisterRule rule = kept_rule<Machine>(state, Value::initial(i), i);
    if (!rule.is(RegisterRule::kSameValue) && !row.registers.set(register_of_slot(i), rule)) return false;
  }
  return true;
}

}  // namespace windlass::flow
