#include "formats/dwarf/lower.h"

#include <algorithm>

namespace windlass::dwarf {

void FullState::start(const Cie& cie) {
  return_column_ =
      static_cast<RegisterNumber>(std::min<std::uint64_t>(cie.return_address_register, kMaxRowRegister + 1));
  (void)same_value(return_column_);
  row_.signal_frame = cie.signal_frame;
}

bool FullState::def_cfa(std::uint64_t reg, std::int64_t offset) {
  return def_cfa_offset(offset) && def_cfa_register(reg);
}

bool FullState::def_cfa_register(std::uint64_t reg) {
  if (reg > kMaxRowRegister) return false;
  has_cfa_ = true;
  row_.cfa = CfaRule::at(static_cast<RegisterNumber>(reg), cfa_offset_);
  return true;
}

bool FullState::def_cfa_offset(std::int64_t offset) {
  if (!fits_row(offset)) return false;
  cfa_offset_ = static_cast<std::int32_t>(offset);  // an expression stays in force (libgcc)
  if (row_.cfa.is(CfaRule::kRegister)) row_.cfa = CfaRule::at(row_.cfa.reg(), cfa_offset_);
  return true;
}

bool FullState::def_cfa_expression(ByteView expression) {
  const auto place = row_.place_of(expression);
  if (!place) return false;
  has_cfa_ = true;
  row_.cfa = CfaRule::expression(*place);
  return true;
}

bool FullState::in_register(std::uint64_t reg, std::uint64_t source) {
  return source <= kMaxRowRegister && set(reg, RegisterRule::in_register(static_cast<RegisterNumber>(source)));
}

bool FullState::at_expression(std::uint64_t reg, ByteView expression) {
  const auto place = row_.place_of(expression);
  return place && set(reg, RegisterRule::at_expression(*place));
}

bool FullState::expression_value(std::uint64_t reg, ByteView expression) {
  const auto place = row_.place_of(expression);
  return place && set(reg, RegisterRule::expression_value(*place));
}

bool FullState::same_value(std::uint64_t reg) {
  if (reg != return_column_) return set(reg, RegisterRule::same_value());
  // Still in the link register; the column of x86-64 and i386 stands for no real register.
  const bool none = (architecture_ == Architecture::kX86_64 && reg == x86_64::kReturnAddress) ||
                    (architecture_ == Architecture::kI386 && reg == i386::kReturnAddress);
  row_.return_address = none ? RegisterRule::undefined() : RegisterRule::in_register(return_column_);
  return true;
}

bool FullState::set(std::uint64_t reg, const RegisterRule& rule) {
  if (reg == return_column_) {
    row_.return_address = rule;
    return true;
  }
  return reg <= kMaxRowRegister && row_.registers.set(static_cast<RegisterNumber>(reg), rule);
}

bool FullState::restore(std::uint64_t reg, const FullState& initial) {
  if (reg > kMaxRowRegister) return false;
  const auto number = static_cast<RegisterNumber>(reg);
  if (number == return_column_)
    row_.return_address = initial.row_.return_address;
  else if (const RegisterRule* rule = initial.row_.registers.find(number))
    return row_.registers.set(number, *rule);
  else
    row_.registers.erase(number);
  return true;
}

namespace {

Failure incomplete(const CfiSection& section, const Fde& fde) {
  const std::uint64_t where = section.bytes.origin() + fde.offset;
  if (fde.cie->return_address_register > kMaxRowRegister)
    return fail(ErrorCode::kLimit, "return address register that cannot be kept", where, fde.begin);
  return fail(ErrorCode::kMalformed, "row without a CFA", where, fde.begin);
}

void give(const FullState& state, std::uint64_t begin, std::uint64_t end, FrameRow& to) {
  to = state.row();
  to.begin = begin;
  to.end = end;
}

template <typename Interpreter>
Expected<void> find_row(Interpreter& interpreter, const CfiSection& section, const Fde& fde, std::uint64_t pc,
                        FrameRow& to) {
  bool found = false;
  bool complete = true;
  const auto done = interpreter.run(fde, [&](std::uint64_t begin, std::uint64_t end, const FullState& state) {
    if (pc < begin || pc >= end) return true;
    found = true;
    complete = state.complete();
    if (complete) give(state, begin, end, to);
    return false;
  });
  if (!found && !done) return Failure(done.error());
  if (!found) return fail(ErrorCode::kNotFound, "address outside the FDE", pc);
  if (!complete) return incomplete(section, fde);
  return {};
}

}  // namespace

Expected<void> RowEvaluator::for_each_row(const Fde& fde, FunctionRef<void(const FrameRow&)> callback) {
  bool complete = true;
  auto done = interpreter_.run(fde, [&](std::uint64_t begin, std::uint64_t end, const FullState& state) {
    if (!state.complete()) {
      complete = false;
      return;
    }
    give(state, begin, end, row_);
    callback(row_);
  });
  if (done && !complete) return incomplete(section_, fde);
  return done;
}

Expected<void> RowEvaluator::row_at(const Fde& fde, std::uint64_t pc, FrameRow& to) {
  return find_row(interpreter_, section_, fde, pc, to);
}

Expected<void> row_at(const CfiSection& section, const Fde& fde, std::uint64_t pc, FrameRow& to) {
  CfaInterpreter<FullState, InlineStorage> interpreter(section, section);
  return find_row(interpreter, section, fde, pc, to);
}

Expected<void> for_each_row(const CfiSection& section, const Fde& fde, FunctionRef<void(const FrameRow&)> callback) {
  return RowEvaluator(section).for_each_row(fde, callback);
}

}  // namespace windlass::dwarf
