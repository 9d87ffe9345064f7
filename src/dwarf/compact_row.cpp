#include "dwarf/compact_row.h"

#include "dwarf/interpreter.h"

namespace windlass::dwarf {
namespace {

using Kind = CompactRule::Kind;

// The interpreter's state policy: FullState in less space.
struct CompactState {
  bool def_cfa(std::uint64_t reg, std::int64_t offset) { return def_cfa_offset(offset) && def_cfa_register(reg); }
  bool def_cfa_register(std::uint64_t reg) {
    if (reg > 0xffff) return false;
    cfa = Cfa::kRegister;
    cfa_register = static_cast<RegisterNumber>(reg);
    return true;
  }
  bool def_cfa_offset(std::int64_t offset) {
    cfa_offset = offset;  // an expression stays in force: see FullState
    return true;
  }
  bool def_cfa_expression(ByteView expression) {
    cfa = Cfa::kExpression;
    return pack(expression, cfa_expression);
  }
  bool at_cfa(std::uint64_t reg, std::int64_t offset) { return set(reg, Kind::kAtCfa, offset); }
  bool cfa_value(std::uint64_t reg, std::int64_t offset) { return set(reg, Kind::kCfaValue, offset); }
  bool in_register(std::uint64_t reg, std::uint64_t source) {
    return source <= 0xffff && set(reg, Kind::kInRegister, static_cast<std::int64_t>(source));
  }
  bool at_expression(std::uint64_t reg, ByteView expression) { return set(reg, Kind::kAtExpression, expression); }
  bool expression_value(std::uint64_t reg, ByteView expression) { return set(reg, Kind::kExpressionValue, expression); }
  bool same_value(std::uint64_t reg) { return set(reg, Kind::kSame, 0); }
  bool undefined(std::uint64_t reg) { return set(reg, Kind::kUndefined, 0); }
  bool restore(std::uint64_t reg, const CompactState& initial) {
    if (const CompactRule* rule = initial.registers.find(reg)) return registers.set(reg, *rule);
    registers.erase(reg);
    return true;
  }
  void toggle_return_signed() { return_signed = !return_signed; }

  bool set(std::uint64_t reg, Kind kind, std::int64_t value) {
    const auto narrow = static_cast<std::int32_t>(value);
    return narrow == value && registers.set(reg, {narrow, 0, kind});
  }
  bool set(std::uint64_t reg, Kind kind, ByteView expression) {
    CompactRule rule{0, 0, kind};
    return pack(expression, rule) && registers.set(reg, rule);
  }
  bool pack(ByteView expression, CompactRule& rule) const {
    const auto offset = static_cast<std::uint64_t>(expression.data() - registers.section().data());
    if (offset > 0xffffffff || expression.size() > 0xffff) return false;
    rule.value = static_cast<std::int32_t>(offset);
    rule.size = static_cast<std::uint16_t>(expression.size());
    return true;
  }

  enum class Cfa : std::uint8_t { kNone, kRegister, kExpression } cfa = Cfa::kNone;
  bool return_signed = false;
  RegisterNumber cfa_register = 0;
  CompactRule cfa_expression;
  std::int64_t cfa_offset = 0;
  CompactRules registers;
};

ByteView expression_of(const CompactRule& rule, ByteView section) {
  const auto offset = static_cast<std::uint32_t>(rule.value);
  return {section.data() + offset, rule.size, section.origin() + offset};
}

// False if the state does not say where the CFA is, or the return address is in no register that can be held.
bool fill(const CfiSection& section, const Cie& cie, const CompactState& state, CompactRow& row) {
  if (state.cfa == CompactState::Cfa::kNone) return false;
  if (state.cfa == CompactState::Cfa::kExpression)
    row.cfa = CfaExpression{expression_of(state.cfa_expression, section.bytes)};
  else
    row.cfa = CfaRegister{state.cfa_register, state.cfa_offset};
  row.registers = state.registers;
  const std::uint64_t column = cie.return_address_register;
  const CompactRule* rule = row.registers.find(column);
  row.return_address = rule != nullptr ? rule->rule(section.bytes) : RegisterRule(SameValue{});
  row.registers.erase(column);
  if (std::holds_alternative<SameValue>(row.return_address)) {
    if (section.architecture == Architecture::kX86_64 && column == x86_64::kReturnAddress)
      row.return_address = Undefined{};  // the column stands for no real register
    else if (column <= 0xffff)
      row.return_address = InRegister{static_cast<RegisterNumber>(column)};  // still in the link register
  }
  row.signal_frame = cie.signal_frame;
  row.return_signed = state.return_signed;
  return true;
}

}  // namespace

RegisterRule CompactRule::rule(ByteView section) const {
  switch (kind) {
    case Kind::kUndefined: return Undefined{};
    case Kind::kSame: return SameValue{};
    case Kind::kAtCfa: return AtCfa{value};
    case Kind::kCfaValue: return CfaValue{value};
    case Kind::kInRegister: return InRegister{static_cast<RegisterNumber>(value)};
    case Kind::kAtExpression: return AtExpression{expression_of(*this, section)};
    case Kind::kExpressionValue: return ExpressionValue{expression_of(*this, section)};
  }
  return Undefined{};
}

FrameRow CompactRow::full() const {
  FrameRow row;
  row.begin = begin;
  row.end = end;
  row.cfa = cfa;
  row.return_address = return_address;
  for (const RegisterEntry& entry : registers) (void)row.registers.set(entry.reg, entry.rule);  // there is room
  row.signal_frame = signal_frame;
  row.return_signed = return_signed;
  return row;
}

Expected<void> compact_row_at(const CfiSection& section, const Fde& fde, std::uint64_t pc, CompactRow& row) {
  CompactState prototype;
  prototype.registers = CompactRules(section.architecture);
  prototype.registers.set_section(section.bytes);
  CfaInterpreter<CompactState, InlineStorage> interpreter(section, prototype);
  bool found = false;
  bool complete = true;
  const auto done = interpreter.run(fde, [&](std::uint64_t begin, std::uint64_t end, const CompactState& state) {
    if (pc < begin || pc >= end) return true;
    found = true;
    row.begin = begin;
    row.end = end;
    complete = fill(section, *fde.cie, state, row);
    return false;
  });
  if (!found && !done) return std::unexpected(done.error());
  if (!found) return fail(ErrorCode::kNotFound, "address outside the FDE", pc);
  if (!complete)
    return fail(ErrorCode::kMalformed, "row without a CFA", section.bytes.origin() + fde.offset, fde.begin);
  return {};
}

}  // namespace windlass::dwarf
