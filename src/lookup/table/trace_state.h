// The trace projection, as a state policy of dwarf's CFA interpreter. Of every row only the CFA, the return address,
// the frame pointer and the module's extra register are kept. They are packed as for the table, and updated in place.
#pragma once

#include <cstdint>

#include "formats/dwarf/cfi.h"
#include "lookup/table/trace_expression.h"
#include "lookup/table/trace_row.h"

namespace windlass::table {

struct X64Registers {
  static constexpr std::uint64_t kFramePointer = 6;  // rbp
  static constexpr std::uint64_t kStackPointer = 7;  // rsp
  static constexpr std::uint64_t kCount = 17;
  static constexpr std::uint64_t kNoRegister = 16;  // the return address column stands for none
};

struct Arm64Registers {
  static constexpr std::uint64_t kFramePointer = 29;
  static constexpr std::uint64_t kStackPointer = 31;
  static constexpr std::uint64_t kCount = 32;
  static constexpr std::uint64_t kNoRegister = ~0ull;  // the return address column is x30
};

// What a rule cannot say becomes the nearest thing that is safe: an untracked frame pointer is WL_REG_UNDEFINED, a CFA
// or return address nobody but user space can compute makes the row WL_CFA_UNSUPPORTED.
template <typename Registers>
class TraceState {
 public:
  TraceState() = default;
  // Call frame information may name register 255, which WL_NO_XREG is. The frame pointer is tracked anyway.
  explicit TraceState(std::uint8_t x_reg)
      : x_reg_(x_reg == WL_NO_XREG ? static_cast<std::uint8_t>(Registers::kFramePointer) : x_reg) {}

  // What holds before the CIE's instructions.
  void start(const dwarf::Cie& cie) {
    const std::uint8_t x_reg = x_reg_;
    *this = TraceState(x_reg);
    return_column_ = cie.return_address_register;
    rule_.low = WL_CFA_REG;
    special_ = kCfaExpression;  // one nobody can evaluate, until there is a CFA
    (void)same_value(return_column_);
    if (cie.signal_frame) rule_.low |= std::uint64_t{WL_RULE_SIGNAL} << PackedRule::kFlags;
  }

  // The rule in force, as PackedRule's words. Words, not the struct: g++ moves a struct through memory in one 16-byte
  // piece, and that load waits until both 8-byte stores have left the store buffer: a third of the time of compiling.
  void read(std::uint64_t& low, std::uint64_t& high) const {
    low = rule_.low;
    high = rule_.high;
    if (special_ != 0) [[unlikely]] {
      const PackedRule rule = resolved();
      low = rule.low;
      high = rule.high;
    }
  }
  [[nodiscard]] PackedRule rule() const { return special_ != 0 ? resolved() : rule_; }

  bool def_cfa(std::uint64_t reg, std::int64_t offset) { return def_cfa_offset(offset) && def_cfa_register(reg); }
  // After an expression this takes the last offset there was: see FullState.
  bool def_cfa_register(std::uint64_t reg) {
    special_ &= static_cast<std::uint8_t>(~(kCfaExpression | kCfaRegisterLost));
    if (reg >= Registers::kCount) [[unlikely]]
      special_ |= kCfaRegisterLost;
    PackedRule::put(rule_.low, PackedRule::kCfaReg, 0xff, reg);
    return true;
  }
  bool def_cfa_offset(std::int64_t offset) {
    const auto narrow = static_cast<std::int32_t>(offset);
    special_ &= static_cast<std::uint8_t>(~kCfaOffsetLost);
    if (narrow != offset) [[unlikely]]
      special_ |= kCfaOffsetLost;
    rule_.low = (rule_.low & 0xffffffff) | static_cast<std::uint64_t>(offset) << PackedRule::kCfaOffset;
    return true;
  }
  bool def_cfa_expression(ByteView expression) {
    const SimpleExpression simple = recognise(expression);
    special_ |= kCfaExpression;
    cfa_offset_ = static_cast<std::int32_t>(simple.offset);
    cfa_reg_ = static_cast<std::uint8_t>(simple.reg);
    cfa_arg_ = simple.argument;
    switch (simple.kind) {
      case SimpleExpression::Kind::kRegister: cfa_kind_ = WL_CFA_REG; break;
      case SimpleExpression::Kind::kLoad: cfa_kind_ = WL_CFA_MEM; break;
      case SimpleExpression::Kind::kPlt: cfa_kind_ = WL_CFA_PLT; break;
      case SimpleExpression::Kind::kOther: cfa_kind_ = WL_CFA_UNSUPPORTED; break;
    }
    if (cfa_offset_ != simple.offset || simple.reg >= Registers::kCount) cfa_kind_ = WL_CFA_UNSUPPORTED;
    return true;
  }

  bool at_cfa(std::uint64_t reg, std::int64_t offset) {
    if (tracked(reg)) set(reg, WL_REG_CFA, offset);
    return true;
  }
  bool cfa_value(std::uint64_t reg, std::int64_t offset) {
    if (tracked(reg)) set(reg, WL_REG_CFA_VALUE, offset);
    return true;
  }
  bool in_register(std::uint64_t reg, std::uint64_t source) {
    if (tracked(reg)) source < Registers::kCount ? set(reg, WL_REG_IN_REG, source) : set(reg, kUnknown, 0);
    return true;
  }
  bool at_expression(std::uint64_t reg, ByteView expression) {
    if (!tracked(reg)) return true;
    const SimpleExpression simple = recognise(expression);
    if (simple.kind == SimpleExpression::Kind::kRegister && simple.reg < Registers::kCount)
      set(reg, WL_REG_BASE, simple.offset, static_cast<std::uint8_t>(simple.reg));
    else
      set(reg, kUnknown, 0);
    return true;
  }
  bool expression_value(std::uint64_t reg, ByteView expression) {
    if (!tracked(reg)) return true;
    const SimpleExpression simple = recognise(expression);
    if (simple.kind == SimpleExpression::Kind::kRegister && simple.reg < Registers::kCount && simple.offset == 0)
      set(reg, WL_REG_IN_REG, static_cast<std::int64_t>(simple.reg));
    else
      set(reg, kUnknown, 0);
    return true;
  }
  bool same_value(std::uint64_t reg) {
    if (reg == return_column_)
      set_return_address_kept();
    else if (tracked(reg))
      set(reg, WL_REG_SAME, 0);
    return true;
  }
  bool undefined(std::uint64_t reg) {
    if (tracked(reg)) set(reg, WL_REG_UNDEFINED, 0);
    return true;
  }
  bool restore(std::uint64_t reg, const TraceState& initial) {
    if (!tracked(reg)) return true;
    const Place place = place_of(reg);
    PackedRule::put(rule_.low, place.kind, 15, initial.rule_.low >> place.kind);
    PackedRule::put(rule_.high, place.offset, 0xffff, initial.rule_.high >> place.offset);
    base_[place.index] = initial.base_[place.index];
    special_ |= initial.special_ & kRegisterRules;
    return true;
  }
  void toggle_return_signed() { rule_.low ^= std::uint64_t{WL_RULE_SIGNED} << PackedRule::kFlags; }

 private:
  // Only while evaluating: a rule that a row cannot hold.
  static constexpr std::uint8_t kUnknown = 15;
  // Why a row needs resolved().
  static constexpr std::uint8_t kRegisterRules = 1;    // a register rule with a base register, or unknown
  static constexpr std::uint8_t kCfaExpression = 2;    // the CFA is cfa_kind_ and so on, not what rule_ says
  static constexpr std::uint8_t kCfaOffsetLost = 4;    // the offset does not fit
  static constexpr std::uint8_t kCfaRegisterLost = 8;  // the register number does not fit

  // No rule moved it: it is in its register, if the column stands for one.
  void set_return_address_kept() {
    if (return_column_ == Registers::kNoRegister)
      set(return_column_, WL_REG_UNDEFINED, 0);
    else if (return_column_ < Registers::kCount)
      set(return_column_, WL_REG_IN_REG, static_cast<std::int64_t>(return_column_));
    else
      set(return_column_, kUnknown, 0);
  }

  // Where the rule of a tracked register is kept.
  struct Place {
    int kind;    // shift in PackedRule::low
    int offset;  // shift in PackedRule::high
    int index;   // in base_
  };
  [[nodiscard]] Place place_of(std::uint64_t reg) const {
    if (reg == Registers::kFramePointer) return {PackedRule::kFpKind, PackedRule::kFpOffset, 0};
    if (reg == return_column_) return {PackedRule::kRaKind, PackedRule::kRaOffset, 1};
    return {PackedRule::kXKind, PackedRule::kXOffset, 2};
  }
  [[nodiscard]] bool tracked(std::uint64_t reg) const {
    return reg == Registers::kFramePointer || reg == return_column_ || reg == x_reg_;
  }
  void set(std::uint64_t reg, std::uint8_t kind, std::int64_t offset, std::uint8_t base = 0) {
    const auto narrow = static_cast<std::int16_t>(offset);
    if (narrow != offset) kind = kUnknown;
    if (kind == WL_REG_BASE || kind == kUnknown) [[unlikely]]
      special_ |= kRegisterRules;
    const Place place = place_of(reg);
    PackedRule::put(rule_.low, place.kind, 15, kind);
    PackedRule::put(rule_.high, place.offset, 0xffff, static_cast<std::uint64_t>(offset));
    base_[place.index] = base;
  }

  // A row with rules that name a base register: they can be kept where that register is the CFA's, or the frame
  // pointer.
  [[gnu::noinline]] PackedRule resolved() const {
    TraceRule rule = rule_.rule();
    if ((special_ & kCfaExpression) != 0) {
      rule.cfa_kind = cfa_kind_;
      rule.cfa_reg = cfa_reg_;
      rule.cfa_offset = cfa_offset_;
      rule.cfa_arg = cfa_arg_;
    } else if ((special_ & (kCfaOffsetLost | kCfaRegisterLost)) != 0) {
      rule.cfa_kind = WL_CFA_UNSUPPORTED;
    }
    BaseSettler settler(rule, Registers::kFramePointer);
    const auto settle = [&](std::uint8_t kind, std::uint8_t base) -> std::uint8_t {
      return kind != WL_REG_BASE ? kind : settler.kind(base).value_or(kUnknown);
    };
    rule.ra_kind = settle(rule.ra_kind, base_[1]) & 15;
    rule.fp_kind = settle(rule.fp_kind, base_[0]) & 15;
    rule.x_kind = settle(rule.x_kind, base_[2]) & 15;
    if (rule.fp_kind == kUnknown) rule.fp_kind = WL_REG_UNDEFINED, rule.fp_offset = 0;
    if (rule.x_kind == kUnknown) rule.x_kind = WL_REG_UNDEFINED, rule.x_offset = 0;
    if (rule.ra_kind == kUnknown) {
      rule.ra_kind = WL_REG_UNDEFINED, rule.ra_offset = 0;
      rule.cfa_kind = WL_CFA_UNSUPPORTED;
    }
    if (rule.cfa_kind == WL_CFA_UNSUPPORTED) rule.cfa_reg = 0, rule.cfa_offset = 0, rule.cfa_arg = 0;
    return PackedRule::of(rule);
  }

  PackedRule rule_;
  std::uint64_t return_column_ = 0;
  std::uint8_t x_reg_ = Registers::kFramePointer;
  std::uint8_t special_ = 0;
  std::uint8_t base_[3] = {};  // the base registers of WL_REG_BASE: of frame pointer, return address, extra register
  std::uint8_t cfa_kind_ = WL_CFA_UNSUPPORTED, cfa_reg_ = 0, cfa_arg_ = 0;
  std::int32_t cfa_offset_ = 0;
};

}  // namespace windlass::table
