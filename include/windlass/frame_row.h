// The row: for a range of code addresses, how to get from the callee's registers to the caller's. Every unwind format
// is lowered to rows.
//
// Rows and rules are values of a fixed size, so nothing here allocates, and all is thread-safe and signal-safe. No
// parsing and no I/O here. For example, the row behind `push rbp; mov rbp, rsp` on x86-64:
//
//   FrameRow row;
//   row.cfa = CfaRule::at(6, 16);                     // CFA = rbp + 16
//   row.return_address = RegisterRule::at_cfa(-8);    // [CFA - 8]
//   const bool fits = row.registers.set(6, RegisterRule::at_cfa(-16));
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "windlass/bytes.h"

namespace windlass {

// A register's DWARF number. Specifications: System V x86-64 psABI, figure 3.36; AADWARF64, table 1.
using RegisterNumber = std::uint16_t;

// The largest register number that a rule can hold. The registers of both architectures are below 160. Code that makes
// rows from numbers in a file checks them first, and fails with kLimit.
inline constexpr RegisterNumber kMaxRowRegister = 0xff;
// True if a rule can hold this offset.
[[nodiscard]] constexpr bool fits_row(std::int64_t offset) { return offset == static_cast<std::int32_t>(offset); }

// The place of a rule's DWARF expression in FrameRow::expressions: offset and size in bytes.
struct ExpressionPlace {
  std::uint32_t offset;
  std::uint16_t size;
};

// How to find the caller's value of a register.
class RegisterRule {
 public:
  enum Kind : std::uint8_t {
    kUndefined,        // Value = unrecoverable.
    kSameValue,        // Value = register.
    kAtCfa,            // Value = [CFA + offset].
    kCfaValue,         // Value = CFA + offset.
    kInRegister,       // Value = reg.
    kAtRegister,       // Value = [reg + offset].
    kRegisterValue,    // Value = reg + offset.
    kAtExpression,     // Value = [expression, evaluated with the CFA pushed].
    kExpressionValue,  // Value = expression, evaluated with the CFA pushed.
  };

  RegisterRule() = default;  // Not initialised.
  // A rule of each kind. For example, at_cfa(-16) means that the value is at CFA - 16.
  [[nodiscard]] static constexpr RegisterRule undefined() { return {kUndefined, 0}; }
  [[nodiscard]] static constexpr RegisterRule same_value() { return {kSameValue, 0}; }
  [[nodiscard]] static constexpr RegisterRule at_cfa(std::int32_t offset) { return {kAtCfa, offset}; }
  [[nodiscard]] static constexpr RegisterRule cfa_value(std::int32_t offset) { return {kCfaValue, offset}; }
  [[nodiscard]] static constexpr RegisterRule in_register(RegisterNumber reg) { return {kInRegister, 0, reg}; }
  [[nodiscard]] static constexpr RegisterRule at_register(RegisterNumber reg, std::int32_t offset) {
    return {kAtRegister, offset, reg};
  }
  [[nodiscard]] static constexpr RegisterRule register_value(RegisterNumber reg, std::int32_t offset) {
    return {kRegisterValue, offset, reg};
  }
  [[nodiscard]] static constexpr RegisterRule at_expression(ExpressionPlace place) { return {kAtExpression, place}; }
  [[nodiscard]] static constexpr RegisterRule expression_value(ExpressionPlace place) {
    return {kExpressionValue, place};
  }

  // The parts of a rule. offset(), reg() and place() are meaningful only for kinds that have them.
  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] constexpr bool is_expression() const { return kind_ >= kAtExpression; }
  [[nodiscard]] constexpr std::int32_t offset() const { return value_; }
  [[nodiscard]] constexpr RegisterNumber reg() const { return reg_; }
  [[nodiscard]] constexpr ExpressionPlace place() const { return {static_cast<std::uint32_t>(value_), size_}; }
  // Compares two rules. Two expressions are equal only if they stand at the same place of the same
  // FrameRow::expressions.
  [[nodiscard]] constexpr bool operator==(const RegisterRule& other) const {
    return std::bit_cast<std::uint64_t>(*this) == std::bit_cast<std::uint64_t>(other);
  }

 private:
  constexpr RegisterRule(Kind kind, std::int32_t offset, RegisterNumber reg = 0)
      : value_(offset), size_(0), reg_(static_cast<std::uint8_t>(reg)), kind_(kind) {}
  constexpr RegisterRule(Kind kind, ExpressionPlace place)
      : value_(static_cast<std::int32_t>(place.offset)), size_(place.size), reg_(0), kind_(kind) {}

  std::int32_t value_;  // An offset, or the place of an expression.
  std::uint16_t size_;  // Of the expression.
  std::uint8_t reg_;
  Kind kind_;
};
static_assert(sizeof(RegisterRule) == 8 && std::is_trivially_copyable_v<RegisterRule>);

// How to find the canonical frame address (CFA).
class CfaRule {
 public:
  enum Kind : std::uint8_t {
    kRegister,    // CFA = reg + offset.
    kLoaded,      // CFA = [reg + offset] + addend.
    kExpression,  // CFA = expression.
  };

  // A rule of each kind. For example, at(7, 8) on x86-64 means CFA = rsp + 8.
  [[nodiscard]] static constexpr CfaRule at(RegisterNumber reg, std::int32_t offset) {
    return {kRegister, offset, 0, reg};
  }
  [[nodiscard]] static constexpr CfaRule loaded(RegisterNumber reg, std::int32_t offset, std::int16_t addend) {
    return {kLoaded, offset, static_cast<std::uint16_t>(addend), reg};
  }
  [[nodiscard]] static constexpr CfaRule expression(ExpressionPlace place) {
    return {kExpression, static_cast<std::int32_t>(place.offset), place.size, 0};
  }

  // The parts of a rule, as for RegisterRule.
  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr bool is(Kind kind) const { return kind_ == kind; }
  // True if the CFA is this register + offset.
  [[nodiscard]] constexpr bool is_at(RegisterNumber reg) const { return kind_ == kRegister && reg_ == reg; }
  [[nodiscard]] constexpr RegisterNumber reg() const { return reg_; }
  [[nodiscard]] constexpr std::int32_t offset() const { return value_; }
  [[nodiscard]] constexpr std::int16_t addend() const { return static_cast<std::int16_t>(extra_); }
  [[nodiscard]] constexpr ExpressionPlace place() const { return {static_cast<std::uint32_t>(value_), extra_}; }
  // As for RegisterRule.
  [[nodiscard]] constexpr bool operator==(const CfaRule& other) const = default;

 private:
  constexpr CfaRule(Kind kind, std::int32_t value, std::uint16_t extra, RegisterNumber reg)
      : value_(value), extra_(extra), reg_(static_cast<std::uint8_t>(reg)), kind_(kind) {}

  std::int32_t value_;   // An offset, or the place of an expression.
  std::uint16_t extra_;  // The addend, or the size of the expression.
  std::uint8_t reg_;
  Kind kind_;
};
static_assert(sizeof(CfaRule) == 8 && std::is_trivially_copyable_v<CfaRule>);

// A register of a row, and its rule. Registers without an entry have the architecture's default. A register that calls
// preserve keeps its value; others are unknown.
struct RegisterEntry {
  RegisterNumber reg;
  RegisterRule rule;
};

// The registers of a row, in ascending order. The capacity is fixed, so that evaluating rows allocates nothing. Two
// cases need the most room:
// - AArch64, where a context is installed: x0-x30, sp and d8-d15.
// - x86-64, a function that preserves everything: 15 general and 32 vector registers.
//
// Construction takes no time, and a copy takes time for the entries in use.
class RegisterRules {
 public:
  static constexpr std::size_t kCapacity = 48;

  // The rule of a register; null if it has no entry. Linear in the entries, which are seldom more than eight.
  [[nodiscard]] const RegisterRule* find(RegisterNumber reg) const;
  // Sets a register's rule. False if `reg` is above kMaxRowRegister. Also false if the table is full, and `reg` is not
  // in it.
  [[nodiscard]] bool set(RegisterNumber reg, const RegisterRule& rule);
  // Adds the rule of a register whose number is above all others in the table. The table must not be full. Constant
  // time.
  void append(RegisterNumber reg, const RegisterRule& rule) {
    regs_[size_] = static_cast<std::uint8_t>(reg);
    rules_[size_++] = rule;
  }
  // Removes a register's rule, so that the register has its default again.
  void erase(RegisterNumber reg);
  void clear() { size_ = 0; }
  // The number of registers with a rule.
  [[nodiscard]] std::size_t size() const { return size_; }
  // The rules where they are kept, and their registers in the same order. Valid until the next change.
  [[nodiscard]] std::span<const RegisterRule> rules() const { return {rules_, size_}; }
  [[nodiscard]] std::span<const std::uint8_t> numbers() const { return {regs_, size_}; }

  class Iterator {
   public:
    using value_type = RegisterEntry;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(const RegisterRules& rules, std::size_t index) : rules_(&rules), index_(index) {}
    RegisterEntry operator*() const { return {rules_->regs_[index_], rules_->rules_[index_]}; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    Iterator operator++(int) { return {*rules_, index_++}; }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const RegisterRules* rules_ = nullptr;
    std::size_t index_ = 0;
  };
  [[nodiscard]] Iterator begin() const { return {*this, 0}; }
  [[nodiscard]] Iterator end() const { return {*this, size_}; }

  RegisterRules() {}  // NOLINT(modernize-use-equals-default): the storage stays uninitialised, also in constants
  RegisterRules(const RegisterRules& other) { *this = other; }
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): memmove allows it
  RegisterRules& operator=(const RegisterRules& other) {
    // Eight at a time, each of a size that the compiler knows. For the entries in use, this is shorter than a call of
    // memcpy.
    for (std::size_t i = 0; i < other.size_; i += kStride) {
      std::memmove(rules_ + i, other.rules_ + i, kStride * sizeof(RegisterRule));
      std::memmove(regs_ + i, other.regs_ + i, kStride);
    }
    size_ = other.size_;
    return *this;
  }

 private:
  static constexpr std::size_t kStride = 8;
  static_assert(kCapacity % kStride == 0);

  [[nodiscard]] std::size_t lower_bound(RegisterNumber reg) const {
    std::size_t at = 0;
    while (at < size_ && regs_[at] < reg) ++at;
    return at;
  }

  RegisterRule rules_[kCapacity];
  std::uint8_t regs_[kCapacity];
  std::uint8_t size_ = 0;
};

// The row: holds for the code addresses [begin, end).
struct FrameRow {
  std::uint64_t begin = 0;  // The first address.
  std::uint64_t end = 0;    // The address behind the last.
  ByteView expressions;     // The bytes of all expressions. They belong to the row's maker.
  CfaRule cfa = CfaRule::at(0, 0);
  RegisterRule return_address = RegisterRule::undefined();  // A leaf may keep the return address in the link register:
                                                            // in_register().
  RegisterRules registers;                                  // Without the return address column.
  bool signal_frame = false;   // The caller's pc is an interrupted instruction, not a return address.
  bool return_signed = false;  // AArch64: the return address has a pointer authentication code.

  // The bytes of a rule's expression.
  [[nodiscard]] ByteView expression(const RegisterRule& rule) const { return expression_at(rule.place()); }
  [[nodiscard]] ByteView expression(const CfaRule& rule) const { return expression_at(rule.place()); }
  // The place of `expression` in `expressions`. Nothing if `expression` is no part of them, or beyond the reach of a
  // rule (4 GiB; 64 KiB).
  [[nodiscard]] std::optional<ExpressionPlace> place_of(ByteView expression) const;

 private:
  [[nodiscard]] ByteView expression_at(ExpressionPlace place) const {
    return expressions.sub(place.offset, place.size).value_or(ByteView());
  }
};
static_assert(sizeof(FrameRow) <= 512);

}  // namespace windlass
