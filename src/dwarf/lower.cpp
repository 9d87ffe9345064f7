#include "dwarf/lower.h"

namespace windlass::dwarf {

bool FullState::def_cfa(std::uint64_t reg, std::int64_t offset) {
  cfa_offset = offset;
  return def_cfa_register(reg);
}

bool FullState::def_cfa_register(std::uint64_t reg) {
  if (reg > 0xffff) return false;
  cfa = Cfa::kRegister;
  cfa_register = static_cast<RegisterNumber>(reg);
  return true;
}

bool FullState::def_cfa_offset(std::int64_t offset) {
  cfa_offset = offset;  // an expression stays in force (libgcc)
  return true;
}

bool FullState::def_cfa_expression(ByteView expression) {
  cfa = Cfa::kExpression;
  cfa_expression = expression;
  return true;
}

bool FullState::in_register(std::uint64_t reg, std::uint64_t source) {
  return source <= 0xffff && set(reg, InRegister{static_cast<RegisterNumber>(source)});
}

bool FullState::set(std::uint64_t reg, const RegisterRule& rule) {
  return reg <= 0xffff && registers.set(static_cast<RegisterNumber>(reg), rule);
}

bool FullState::restore(std::uint64_t reg, const FullState& initial) {
  if (reg > 0xffff) return false;
  const auto number = static_cast<RegisterNumber>(reg);
  if (const RegisterRule* rule = initial.registers.find(number)) return registers.set(number, *rule);
  registers.erase(number);
  return true;
}

// False if the row does not say where the CFA is.
bool RowEvaluator::fill(const Fde& fde, std::uint64_t begin, std::uint64_t end, const FullState& state) {
  row_.begin = begin;
  row_.end = end;
  if (state.cfa == FullState::Cfa::kNone) return false;
  if (state.cfa == FullState::Cfa::kExpression)
    row_.cfa = CfaExpression{state.cfa_expression};
  else
    row_.cfa = CfaRegister{state.cfa_register, state.cfa_offset};
  row_.registers = state.registers;
  const std::uint64_t column = fde.cie->return_address_register;
  const RegisterRule* rule = column <= 0xffff ? row_.registers.find(static_cast<RegisterNumber>(column)) : nullptr;
  row_.return_address = rule != nullptr ? *rule : RegisterRule(SameValue{});
  if (rule != nullptr) row_.registers.erase(static_cast<RegisterNumber>(column));
  if (std::holds_alternative<SameValue>(row_.return_address)) {
    if (section_.architecture == Architecture::kX86_64 && column == x86_64::kReturnAddress)
      row_.return_address = Undefined{};  // the column stands for no real register
    else if (column <= 0xffff)
      row_.return_address = InRegister{static_cast<RegisterNumber>(column)};  // still in the link register
  }
  row_.signal_frame = fde.cie->signal_frame;
  row_.return_signed = state.return_signed;
  return true;
}

Expected<void> RowEvaluator::for_each_row(const Fde& fde, FunctionRef<void(const FrameRow&)> callback) {
  bool complete = true;
  auto done = interpreter_.run(fde, [&](std::uint64_t begin, std::uint64_t end, const FullState& state) {
    if (fill(fde, begin, end, state))
      callback(row_);
    else
      complete = false;
  });
  if (!done) return done;
  if (!complete)
    return fail(ErrorCode::kMalformed, "row without a CFA", section_.bytes.origin() + fde.offset, fde.begin);
  return {};
}

Expected<FrameRow> RowEvaluator::row_at(const Fde& fde, std::uint64_t pc) {
  bool found = false;
  bool complete = true;
  const auto done = interpreter_.run(fde, [&](std::uint64_t begin, std::uint64_t end, const FullState& state) {
    if (pc < begin || pc >= end) return true;
    found = true;
    complete = fill(fde, begin, end, state);
    return false;
  });
  if (!found && !done) return std::unexpected(done.error());
  if (!found) return fail(ErrorCode::kNotFound, "address outside the FDE", pc);
  if (!complete)
    return fail(ErrorCode::kMalformed, "row without a CFA", section_.bytes.origin() + fde.offset, fde.begin);
  return row_;
}

Expected<void> for_each_row(const CfiSection& section, const Fde& fde, FunctionRef<void(const FrameRow&)> callback) {
  return RowEvaluator(section).for_each_row(fde, callback);
}

}  // namespace windlass::dwarf
