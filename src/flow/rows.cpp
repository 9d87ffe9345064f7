#include "flow/rows.h"

#include <atomic>
#include <cstring>

#include "formats/dwarf/expression_ops.h"
#include "windlass/registers.h"

namespace windlass::flow {
namespace {

// ---- expressions --------------------------------------------------------------------------------------------------

// A word of the pool is an expression of eight bytes, filled up with DW_OP_nop; 0 is a free place.
constexpr std::size_t kPoolSize = 4096;
constexpr unsigned kProbes = 64;
std::atomic<std::uint64_t> pool[kPoolSize];
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof pool[0] == 8);

struct ExpressionBytes {
  std::uint8_t bytes[8];
  unsigned size = 0;
  bool overflow = false;

  void put(unsigned byte) {
    if (size < sizeof bytes)
      bytes[size++] = static_cast<std::uint8_t>(byte);
    else
      overflow = true;
  }
  void put_signed(std::int64_t value) {  // SLEB128
    for (;;) {
      const auto low = static_cast<unsigned>(value & 0x7f);
      value >>= 7;
      const bool last = (value == 0 && (low & 0x40) == 0) || (value == -1 && (low & 0x40) != 0);
      put(last ? low : low | 0x80);
      if (last) return;
    }
  }
  void put_register(unsigned reg, std::int64_t offset) {
    put(dwarf::DW_OP_breg0 + reg);
    put_signed(offset);
  }
  void put_plus(std::int64_t n) {
    if (n == 0) return;
    if (n > 0 && n < 128) {
      put(dwarf::DW_OP_plus_uconst);
      put(static_cast<unsigned>(n));
      return;
    }
    if (n != static_cast<std::int16_t>(n)) overflow = true;
    put(dwarf::DW_OP_const2s);
    put(static_cast<unsigned>(n) & 0xff);
    put(static_cast<unsigned>(n) >> 8 & 0xff);
    put(dwarf::DW_OP_plus);
  }
};

std::optional<ExpressionPlace> intern(ExpressionBytes& expression) {
  if (expression.overflow) return std::nullopt;
  while (expression.size < sizeof expression.bytes) expression.put(dwarf::DW_OP_nop);
  std::uint64_t word = 0;
  std::memcpy(&word, expression.bytes, sizeof word);
  const std::uint64_t hash = word * 0x9e37'79b9'7f4a'7c15 >> 40;
  for (unsigned i = 0; i < kProbes; ++i) {
    std::atomic<std::uint64_t>& place = pool[(hash + i) % kPoolSize];
    std::uint64_t found = place.load(std::memory_order_acquire);
    if (found == 0 && place.compare_exchange_strong(found, word, std::memory_order_acq_rel)) found = word;
    if (found == word)
      return ExpressionPlace{static_cast<std::uint32_t>((hash + i) % kPoolSize * sizeof word), sizeof word};
  }
  return std::nullopt;
}

// ---- rules --------------------------------------------------------------------------------------------------------

bool same_bytes(const ByteView& a, const ByteView& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// A rule and what its expression is part of.
struct RuleIn {
  const FrameRow& row;
  const RegisterRule rule;
};

bool same_rule(const RuleIn& a, const RuleIn& b) {
  if (!a.rule.is_expression() || a.rule.kind() != b.rule.kind()) return a.rule == b.rule;
  return same_bytes(a.row.expression(a.rule), b.row.expression(b.rule));
}

bool same_cfa(const FrameRow& a, const FrameRow& b) {
  if (!a.cfa.is(CfaRule::kExpression) || !b.cfa.is(CfaRule::kExpression)) return a.cfa == b.cfa;
  return same_bytes(a.expression(a.cfa), b.expression(b.cfa));
}

RuleIn rule_in(const FrameRow& row, RegisterNumber reg) {
  const RegisterRule* rule = row.registers.find(reg);
  const bool same = rule == nullptr || *rule == RegisterRule::in_register(reg);
  return {row, same ? RegisterRule::same_value() : *rule};
}

// The place in the pool of an expression for an address or value that begins with a load. Nothing if the expression
// does not fit into eight bytes, or the pool is full.
std::optional<ExpressionPlace> expression_of(const Value& value) {
  if (value.reg >= 32) return std::nullopt;
  ExpressionBytes expression;
  expression.put_register(value.reg, value.slot);
  expression.put(dwarf::DW_OP_deref);
  if (value.kind == Value::kMemory2) {
    expression.put_plus(value.slot2);
    expression.put(dwarf::DW_OP_deref);
  }
  expression.put_plus(value.addend);
  return intern(expression);
}

// CFA = sp as the function leaves it.
std::optional<CfaRule> cfa_of(const Value& sp) {
  if (sp.kind == Value::kMemory2) {
    const auto place = expression_of(sp);
    return place ? std::optional(CfaRule::expression(*place)) : std::nullopt;
  }
  const RegisterNumber reg = register_of_slot(sp.reg);
  if (sp.kind == Value::kRegister) {
    if (!fits_row(sp.addend)) return std::nullopt;
    return CfaRule::at(reg, static_cast<std::int32_t>(sp.addend));
  }
  const auto addend = static_cast<std::int16_t>(sp.addend);
  return addend == sp.addend ? std::optional(CfaRule::loaded(reg, sp.slot, addend)) : std::nullopt;
}

}  // namespace

RegisterRule rule_at(const Value& address, const Value& cfa) {
  if (!address.is_address() || address.is_symbol()) return RegisterRule::undefined();
  const bool by_cfa = address.same_base(cfa);
  const std::int64_t offset = by_cfa ? address.minus(cfa) : address.addend;
  if ((by_cfa || address.kind == Value::kRegister) && !fits_row(offset)) return RegisterRule::undefined();
  const auto narrow = static_cast<std::int32_t>(offset);
  if (by_cfa) return RegisterRule::at_cfa(narrow);
  if (address.kind == Value::kRegister) return RegisterRule::at_register(register_of_slot(address.reg), narrow);
  const auto place = expression_of(address);
  return place ? RegisterRule::at_expression(*place) : RegisterRule::undefined();
}

ByteView shared_expressions() { return {reinterpret_cast<const std::byte*>(pool), sizeof pool}; }

namespace {

// The caller's value of a register is `value`, its sp is `cfa`.
RegisterRule rule_of(const Value& value, const Value& cfa) {
  if (!value.is_address() || value.is_symbol()) return RegisterRule::undefined();
  if (value.same_base(cfa)) {
    const std::int64_t offset = value.minus(cfa);
    return fits_row(offset) ? RegisterRule::cfa_value(static_cast<std::int32_t>(offset)) : RegisterRule::undefined();
  }
  if (value.kind == Value::kRegister) {
    const RegisterNumber reg = register_of_slot(value.reg);
    if (value.addend == 0) return RegisterRule::in_register(reg);
    if (!fits_row(value.addend)) return RegisterRule::undefined();
    return RegisterRule::register_value(reg, static_cast<std::int32_t>(value.addend));
  }
  if (value.addend != 0) return RegisterRule::undefined();
  // Loaded: from where?
  return rule_at(value.kind == Value::kMemory ? Value::initial(value.reg, value.slot)
                                              : Value{Value::kMemory, value.reg, 0, value.slot, value.slot2},
                 cfa);
}

}  // namespace

bool make_row(Architecture architecture, const ExitView& exit, std::uint64_t pc, FrameRow& row) {
  const Value& sp = exit.registers[Registers::sp_number(architecture)];
  if (!sp.is_address() || sp.is_symbol()) return false;
  row.begin = pc;
  row.end = pc + 1;
  row.signal_frame = exit.signal_frame;
  row.return_signed = exit.return_signed;
  row.registers.clear();
  row.expressions = shared_expressions();
  const auto cfa = cfa_of(sp);
  if (!cfa) return false;
  row.cfa = *cfa;
  row.return_address = rule_of(exit.return_address, sp);
  if (row.return_address.is(RegisterRule::kUndefined)) return false;
  for (unsigned slot = 0; slot < exit.count; ++slot) {
    const RegisterNumber reg = register_of_slot(slot);
    if (reg == Registers::sp_number(architecture) || reg == Registers::pc_number(architecture)) continue;
    const Value& value = exit.registers[slot];
    const bool preserved = is_callee_saved(architecture, reg);
    if (!preserved && !exit.signal_frame && !exit.all_registers) continue;
    if (value.is_initial(slot) && (preserved || exit.signal_frame)) continue;
    const RegisterRule rule = value.is_initial(slot) ? RegisterRule::same_value() : rule_of(value, sp);
    if (!row.registers.set(reg, rule)) return false;
  }
  return true;
}

bool keeps_convention(Architecture architecture, const ExitView& exit) {
  constexpr std::int64_t kRedZone = -128, kMaxFrame = std::int64_t{1} << 30;
  const RegisterNumber sp_number = Registers::sp_number(architecture);
  const Value& sp = exit.registers[sp_number];
  if (!sp.is_address() || sp.is_symbol()) return false;
  const bool by_sp = sp.kind == Value::kRegister && sp.reg == sp_number;
  const std::int64_t least = architecture == Architecture::kX86_64 ? 8 : 0;  // the return address itself
  if (by_sp && (sp.addend < least || sp.addend > kMaxFrame)) return false;
  for (unsigned slot = 0; slot < exit.count; ++slot) {
    const Value& value = exit.registers[slot];
    if (!is_callee_saved(architecture, register_of_slot(slot)) || value.is_initial(slot)) continue;
    if (!value.is_address() || value.is_symbol() || value.addend != 0) return false;
    // Kept in a register meanwhile: in one that nobody else preserves either.
    if (value.kind == Value::kRegister &&
        (exit.calls != 0 || is_callee_saved(architecture, register_of_slot(value.reg)) || value.reg == sp_number))
      return false;
    if (by_sp && value.kind == Value::kMemory && value.reg == sp_number &&
        (value.slot < kRedZone || value.slot >= sp.addend))
      return false;
  }
  return true;
}

bool same_frame(const FrameRow& a, const FrameRow& b) {
  return same_cfa(a, b) && same_rule({a, a.return_address}, {b, b.return_address});
}

bool same_row(Architecture architecture, const FrameRow& a, const FrameRow& b) {
  if (!same_frame(a, b)) return false;
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) {
    const RegisterNumber reg = register_of_slot(slot);
    if (is_callee_saved(architecture, reg) && !same_rule(rule_in(a, reg), rule_in(b, reg))) return false;
  }
  return true;
}

bool same_caller_aarch64(const FrameRow& cfi, const FrameRow& code) {
  const CfaRule &a = cfi.cfa, &b = code.cfa;
  if (!a.is(CfaRule::kRegister) || !b.is(CfaRule::kRegister)) return same_row(Architecture::kAArch64, cfi, code);
  if (a.reg() == b.reg() && a.offset() != b.offset()) return false;
  const CfaRule* by_sp = a.is_at(aarch64::kSp) ? &a : b.is_at(aarch64::kSp) ? &b : nullptr;
  const auto same = [&](RegisterNumber reg, const RuleIn& saved, const RuleIn& now) {
    if (same_rule(saved, now)) return true;
    const bool back = now.rule.is(RegisterRule::kSameValue) || now.rule == RegisterRule::in_register(reg);
    return saved.rule.is(RegisterRule::kAtCfa) && back &&
           (by_sp == nullptr || std::int64_t{by_sp->offset()} + saved.rule.offset() >= 0);
  };
  if (!same(aarch64::kX30, {cfi, cfi.return_address}, {code, code.return_address})) return false;
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) {
    const RegisterNumber reg = register_of_slot(slot);
    if (is_callee_saved(Architecture::kAArch64, reg) && !same(reg, rule_in(cfi, reg), rule_in(code, reg))) return false;
  }
  return true;
}

}  // namespace windlass::flow
