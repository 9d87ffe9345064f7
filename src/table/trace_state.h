// The trace projection as a state policy of dwarf's CFA interpreter: of every row only the CFA, the return address, the
// frame pointer and the module's extra register are kept, packed as they go into the table, and updated in place.
#pragma once

#include <cstdint>

#include "dwarf/cfi.h"
#include "table/trace_expression.h"
#include "table/trace_row.h"

namespace windlass::table {

struct X64Registers {
  static constexpr std::uint64_t kFramePointer = 6;  // rbp
  static constexpr std::uint64_t kStackPointer = 7;  // rsp
  static constexpr std::uint64_t kCount = 17;        // 16 is the return address column
  static constexpr bool kReturnAddressInRegister = false;
  static constexpr std::uint64_t kCalleeSaved = 1u << 3 | 0xfu << 12;  // rbx, r12-r15
};

struct Arm64Registers {
  static constexpr std::uint64_t kFramePointer = 29;
  static constexpr std::uint64_t kStackPointer = 31;
  static constexpr std::uint64_t kCount = 32;
  static constexpr bool kReturnAddressInRegister = true;       // x30: without a rule it still holds it
  static constexpr std::uint64_t kCalleeSaved = 0x3ffu << 19;  // x19-x28
};

// What a rule cannot say becomes the nearest thing that is safe: an untracked frame pointer is WL_REG_UNDEFINED, a CFA
// or return address nobody but user space can compute makes the row WL_CFA_UNSUPPORTED.
template <typename Registers>
class TraceState {
 public:
  TraceState() = default;
  explicit TraceState(std::uint8_t x_reg) : x_reg_(x_reg) {}

  // What holds before the CIE's instructions.
  void start(const dwarf::Cie& cie) {
    const std::uint8_t x_reg = x_reg_;
    *this = TraceState(x_reg);
    return_column_ = cie.return_address_register;
    rule_.cfa_kind = WL_CFA_REG;
    special_ = kCfaExpression;  // one nobody can evaluate, until there is a CFA
    rule_.ra_kind = Registers::kReturnAddressInRegister ? WL_REG_SAME : WL_REG_UNDEFINED;
    if (cie.signal_frame) rule_.flags |= WL_RULE_SIGNAL;
  }

  [[nodiscard]] TraceRule rule() const {
    if (special_ != 0) [[unlikely]]
      return resolved();
    return rule_;
  }

  bool def_cfa(std::uint64_t reg, std::int64_t offset) { return def_cfa_offset(offset) && def_cfa_register(reg); }
  // After an expression this takes the last offset there was: see FullState.
  bool def_cfa_register(std::uint64_t reg) {
    special_ &= static_cast<std::uint8_t>(~(kCfaExpression | kCfaRegisterLost));
    if (reg >= Registers::kCount) [[unlikely]]
      special_ |= kCfaRegisterLost;
    rule_.cfa_reg = static_cast<std::uint8_t>(reg);
    return true;
  }
  bool def_cfa_offset(std::int64_t offset) {
    const auto narrow = static_cast<std::int32_t>(offset);
    special_ &= static_cast<std::uint8_t>(~kCfaOffsetLost);
    if (narrow != offset) [[unlikely]]
      special_ |= kCfaOffsetLost;
    rule_.cfa_offset = narrow;
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
    if (tracked(reg)) set(reg, WL_REG_SAME, 0);
    return true;
  }
  bool undefined(std::uint64_t reg) {
    if (tracked(reg)) set(reg, WL_REG_UNDEFINED, 0);
    return true;
  }
  bool restore(std::uint64_t reg, const TraceState& initial) {
    if (!tracked(reg)) return true;
    if (reg == Registers::kFramePointer) {
      rule_.fp_kind = initial.rule_.fp_kind;
      rule_.fp_offset = initial.rule_.fp_offset;
      fp_base_ = initial.fp_base_;
    } else if (reg == return_column_) {
      rule_.ra_kind = initial.rule_.ra_kind;
      rule_.ra_offset = initial.rule_.ra_offset;
      ra_base_ = initial.ra_base_;
    } else {
      rule_.x_kind = initial.rule_.x_kind;
      rule_.x_offset = initial.rule_.x_offset;
      x_base_ = initial.x_base_;
    }
    special_ |= initial.special_ & kRegisterRules;
    return true;
  }
  void toggle_return_signed() { rule_.flags ^= WL_RULE_SIGNED; }

 private:
  // Only while evaluating: a rule that a row cannot hold.
  static constexpr std::uint8_t kUnknown = 15;
  // Why a row needs resolved().
  static constexpr std::uint8_t kRegisterRules = 1;    // a register rule with a base register, or unknown
  static constexpr std::uint8_t kCfaExpression = 2;    // the CFA is cfa_kind_ and so on, not what rule_ says
  static constexpr std::uint8_t kCfaOffsetLost = 4;    // the offset does not fit
  static constexpr std::uint8_t kCfaRegisterLost = 8;  // the register number does not fit

  [[nodiscard]] bool tracked(std::uint64_t reg) const {
    return reg == Registers::kFramePointer || reg == return_column_ || reg == x_reg_;
  }
  void set(std::uint64_t reg, std::uint8_t kind, std::int64_t offset, std::uint8_t base = 0) {
    const auto narrow = static_cast<std::int16_t>(offset);
    if (narrow != offset) kind = kUnknown;
    if (kind == WL_REG_BASE || kind == kUnknown) [[unlikely]]
      special_ |= kRegisterRules;
    if (reg == Registers::kFramePointer) {
      rule_.fp_kind = kind & 15;
      rule_.fp_offset = narrow;
      fp_base_ = base;
    } else if (reg == return_column_) {
      rule_.ra_kind = kind & 15;
      rule_.ra_offset = narrow;
      ra_base_ = base;
    } else {
      rule_.x_kind = kind & 15;
      rule_.x_offset = narrow;
      x_base_ = base;
    }
  }

  // A row with rules that name a base register: they can be kept where that register is the CFA's, or the frame
  // pointer.
  [[gnu::noinline]] TraceRule resolved() const {
    TraceRule rule = rule_;
    if ((special_ & kCfaExpression) != 0) {
      rule.cfa_kind = cfa_kind_;
      rule.cfa_reg = cfa_reg_;
      rule.cfa_offset = cfa_offset_;
      rule.cfa_arg = cfa_arg_;
    } else if ((special_ & (kCfaOffsetLost | kCfaRegisterLost)) != 0) {
      rule.cfa_kind = WL_CFA_UNSUPPORTED;
    }
    const auto settle = [&](std::uint8_t kind, std::uint8_t base) -> std::uint8_t {
      if (kind != WL_REG_BASE) return kind;
      if (base == rule.cfa_reg && rule.cfa_kind != WL_CFA_UNSUPPORTED) return WL_REG_BASE;
      return base == Registers::kFramePointer ? std::uint8_t{WL_REG_FP} : kUnknown;
    };
    rule.fp_kind = settle(rule.fp_kind, fp_base_) & 15;
    rule.ra_kind = settle(rule.ra_kind, ra_base_) & 15;
    rule.x_kind = settle(rule.x_kind, x_base_) & 15;
    if (rule.fp_kind == kUnknown) rule.fp_kind = WL_REG_UNDEFINED, rule.fp_offset = 0;
    if (rule.x_kind == kUnknown) rule.x_kind = WL_REG_UNDEFINED, rule.x_offset = 0;
    if (rule.ra_kind == kUnknown) {
      rule.ra_kind = WL_REG_UNDEFINED, rule.ra_offset = 0;
      rule.cfa_kind = WL_CFA_UNSUPPORTED;
    }
    if (rule.cfa_kind == WL_CFA_UNSUPPORTED) rule.cfa_reg = 0, rule.cfa_offset = 0, rule.cfa_arg = 0;
    return rule;
  }

  TraceRule rule_{};
  std::uint64_t return_column_ = 0;
  std::uint8_t x_reg_ = WL_NO_XREG;
  std::uint8_t special_ = 0;
  std::uint8_t fp_base_ = 0, ra_base_ = 0, x_base_ = 0;  // the base registers of WL_REG_BASE
  std::uint8_t cfa_kind_ = WL_CFA_UNSUPPORTED, cfa_reg_ = 0, cfa_arg_ = 0;
  std::int32_t cfa_offset_ = 0;
};

}  // namespace windlass::table
