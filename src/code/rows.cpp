#include "code/rows.h"

#include <atomic>
#include <cstring>

#include "dwarf/expression_ops.h"
#include "windlass/registers.h"

namespace windlass::code {
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

std::optional<ByteView> intern(ExpressionBytes& expression) {
  if (expression.overflow) return std::nullopt;
  while (expression.size < sizeof expression.bytes) expression.put(dwarf::DW_OP_nop);
  std::uint64_t word = 0;
  std::memcpy(&word, expression.bytes, sizeof word);
  const std::uint64_t hash = word * 0x9e37'79b9'7f4a'7c15 >> 40;
  for (unsigned i = 0; i < kProbes; ++i) {
    std::atomic<std::uint64_t>& place = pool[(hash + i) % kPoolSize];
    std::uint64_t found = place.load(std::memory_order_acquire);
    if (found == 0 && place.compare_exchange_strong(found, word, std::memory_order_acq_rel)) found = word;
    if (found == word) return ByteView(reinterpret_cast<const std::byte*>(&place), sizeof word);
  }
  return std::nullopt;
}

// ---- rules --------------------------------------------------------------------------------------------------------

// The caller's value of a register is `value`, its sp is `cfa`.
RegisterRule rule_of(const Value& value, const Value& cfa) {
  if (!value.is_address() || value.is_symbol()) return Undefined{};
  if (value.same_base(cfa)) return CfaValue{value.addend - cfa.addend};
  if (value.kind == Value::kRegister) {
    if (value.addend == 0) return InRegister{register_of_slot(value.reg)};
    if (const auto expression = expression_of(value)) return ExpressionValue{*expression};
    return Undefined{};
  }
  if (value.addend != 0) return Undefined{};
  // Loaded: from where?
  const Value address = value.kind == Value::kMemory ? Value::initial(value.reg, value.slot)
                                                     : Value{Value::kMemory, value.reg, 0, value.slot, value.slot2};
  if (address.same_base(cfa)) return AtCfa{address.addend - cfa.addend};
  if (const auto expression = expression_of(address)) return AtExpression{*expression};
  return Undefined{};
}

bool same_bytes(const ByteView& a, const ByteView& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

bool same_rule(const RegisterRule& a, const RegisterRule& b) {
  if (a.index() != b.index()) return false;
  if (const auto* at = std::get_if<AtCfa>(&a)) return at->offset == std::get<AtCfa>(b).offset;
  if (const auto* is = std::get_if<CfaValue>(&a)) return is->offset == std::get<CfaValue>(b).offset;
  if (const auto* in = std::get_if<InRegister>(&a)) return in->reg == std::get<InRegister>(b).reg;
  if (const auto* at = std::get_if<AtExpression>(&a))
    return same_bytes(at->expression, std::get<AtExpression>(b).expression);
  if (const auto* is = std::get_if<ExpressionValue>(&a))
    return same_bytes(is->expression, std::get<ExpressionValue>(b).expression);
  return true;
}

bool same_cfa(const CfaRule& a, const CfaRule& b) {
  const auto* plain = std::get_if<CfaRegister>(&a);
  const auto* other = std::get_if<CfaRegister>(&b);
  if ((plain == nullptr) != (other == nullptr)) return false;
  if (plain != nullptr) return plain->reg == other->reg && plain->offset == other->offset;
  return same_bytes(std::get<CfaExpression>(a).expression, std::get<CfaExpression>(b).expression);
}

RegisterRule rule_in(const FrameRow& row, RegisterNumber reg) {
  const RegisterRule* rule = row.registers.find(reg);
  if (rule == nullptr) return SameValue{};
  if (const auto* in = std::get_if<InRegister>(rule); in != nullptr && in->reg == reg) return SameValue{};
  return *rule;
}

}  // namespace

std::optional<ByteView> expression_of(const Value& value) {
  if (!value.is_address() || value.reg >= 32) return std::nullopt;
  ExpressionBytes expression;
  if (value.kind == Value::kRegister) {
    expression.put_register(value.reg, value.addend);
    return intern(expression);
  }
  expression.put_register(value.reg, value.slot);
  expression.put(dwarf::DW_OP_deref);
  if (value.kind == Value::kMemory2) {
    expression.put_plus(value.slot2);
    expression.put(dwarf::DW_OP_deref);
  }
  expression.put_plus(value.addend);
  return intern(expression);
}

bool make_row(Architecture architecture, const ExitView& exit, std::uint64_t pc, FrameRow& row) {
  const Value& sp = exit.registers[Registers::sp_number(architecture)];
  if (!sp.is_address() || sp.is_symbol()) return false;
  row.begin = pc;
  row.end = pc + 1;
  row.signal_frame = exit.signal_frame;
  row.return_signed = exit.return_signed;
  row.registers.clear();
  if (sp.kind == Value::kRegister) {
    row.cfa = CfaRegister{register_of_slot(sp.reg), sp.addend};
  } else {
    const auto expression = expression_of(sp);
    if (!expression) return false;
    row.cfa = CfaExpression{*expression};
  }
  row.return_address = rule_of(exit.return_address, sp);
  if (std::holds_alternative<Undefined>(row.return_address)) return false;
  for (unsigned slot = 0; slot < exit.count; ++slot) {
    const RegisterNumber reg = register_of_slot(slot);
    if (reg == Registers::sp_number(architecture) || reg == Registers::pc_number(architecture)) continue;
    if (!exit.signal_frame && !is_callee_saved(architecture, reg)) continue;
    if (exit.registers[slot].is_initial(slot)) continue;
    if (!row.registers.set(reg, rule_of(exit.registers[slot], sp))) return false;
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
  return same_cfa(a.cfa, b.cfa) && same_rule(a.return_address, b.return_address);
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
  const auto* a = std::get_if<CfaRegister>(&cfi.cfa);
  const auto* b = std::get_if<CfaRegister>(&code.cfa);
  if (a == nullptr || b == nullptr) return same_row(Architecture::kAArch64, cfi, code);
  if (a->reg == b->reg && a->offset != b->offset) return false;
  const auto* by_sp = a->reg == aarch64::kSp ? a : b->reg == aarch64::kSp ? b : nullptr;
  const auto same = [&](RegisterNumber reg, const RegisterRule& saved, const RegisterRule& now) {
    if (same_rule(saved, now)) return true;
    const auto* at = std::get_if<AtCfa>(&saved);
    const auto* in = std::get_if<InRegister>(&now);
    const bool back = std::holds_alternative<SameValue>(now) || (in != nullptr && in->reg == reg);
    return at != nullptr && back && (by_sp == nullptr || by_sp->offset + at->offset >= 0);
  };
  if (!same(aarch64::kX30, cfi.return_address, code.return_address)) return false;
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) {
    const RegisterNumber reg = register_of_slot(slot);
    if (is_callee_saved(Architecture::kAArch64, reg) && !same(reg, rule_in(cfi, reg), rule_in(code, reg))) return false;
  }
  return true;
}

}  // namespace windlass::code
