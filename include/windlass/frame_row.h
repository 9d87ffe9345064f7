// The one row type every unwind format is lowered to: from a code address on, how to get from the callee's registers
// to the caller's. No parsing and no I/O here. Rows and rules are values of a fixed size: no allocation, signal-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "windlass/bytes.h"

namespace windlass {

// A register by its DWARF number in the architecture at hand (System V x86-64 psABI figure 3.36, AADWARF64 table 1).
using RegisterNumber = std::uint16_t;

// What rules have room for. Both architectures' registers are below 160. Whoever makes rows of numbers that he has
// read asks first, and fails with kLimit.
inline constexpr RegisterNumber kMaxRowRegister = 0xff;
[[nodiscard]] constexpr bool fits_row(std::int64_t offset) { return offset == static_cast<std::int32_t>(offset); }

// Where in FrameRow::expressions the DWARF expression of a rule is.
struct ExpressionPlace {
  std::uint32_t offset;
  std::uint16_t size;
};

// Where the caller's value of one register is.
class RegisterRule {
 public:
  enum Kind : std::uint8_t {
    kUndefined,        // value = unrecoverable
    kSameValue,        // value = register
    kAtCfa,            // value = [CFA + offset]
    kCfaValue,         // value = CFA + offset
    kInRegister,       // value = reg
    kAtRegister,       // value = [reg + offset]
    kRegisterValue,    // value = reg + offset
    kAtExpression,     // value = [expression with CFA pushed]
    kExpressionValue,  // value = expression with CFA pushed
  };

  RegisterRule() = default;  // not initialised
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

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] constexpr bool is_expression() const { return kind_ >= kAtExpression; }
  [[nodiscard]] constexpr std::int32_t offset() const { return value_; }
  [[nodiscard]] constexpr RegisterNumber reg() const { return reg_; }
  [[nodiscard]] constexpr ExpressionPlace place() const { return {static_cast<std::uint32_t>(value_), size_}; }
  // Of two rules with expressions only if these stand at the same place of the same FrameRow::expressions.
  [[nodiscard]] constexpr bool operator==(const RegisterRule& other) const {
    return std::bit_cast<std::uint64_t>(*this) == std::bit_cast<std::uint64_t>(other);
  }

 private:
  constexpr RegisterRule(Kind kind, std::int32_t offset, RegisterNumber reg = 0)
      : value_(offset), size_(0), reg_(static_cast<std::uint8_t>(reg)), kind_(kind) {}
  constexpr RegisterRule(Kind kind, ExpressionPlace place)
      : value_(static_cast<std::int32_t>(place.offset)), size_(place.size), reg_(0), kind_(kind) {}

  std::int32_t value_;  // an offset, or where an expression is
  std::uint16_t size_;  // of the expression
  std::uint8_t reg_;
  Kind kind_;
};
static_assert(sizeof(RegisterRule) == 8 && std::is_trivially_copyable_v<RegisterRule>);

// Where the canonical frame address is.
class CfaRule {
 public:
  enum Kind : std::uint8_t {
    kRegister,    // CFA = reg + offset
    kLoaded,      // CFA = [reg + offset] + addend
    kExpression,  // CFA = expression
  };

  [[nodiscard]] static constexpr CfaRule at(RegisterNumber reg, std::int32_t offset) {
    return {kRegister, offset, 0, reg};
  }
  [[nodiscard]] static constexpr CfaRule loaded(RegisterNumber reg, std::int32_t offset, std::int16_t addend) {
    return {kLoaded, offset, static_cast<std::uint16_t>(addend), reg};
  }
  [[nodiscard]] static constexpr CfaRule expression(ExpressionPlace place) {
    return {kExpression, static_cast<std::int32_t>(place.offset), place.size, 0};
  }

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr bool is(Kind kind) const { return kind_ == kind; }
  // CFA = this register + offset?
  [[nodiscard]] constexpr bool is_at(RegisterNumber reg) const { return kind_ == kRegister && reg_ == reg; }
  [[nodiscard]] constexpr RegisterNumber reg() const { return reg_; }
  [[nodiscard]] constexpr std::int32_t offset() const { return value_; }
  [[nodiscard]] constexpr std::int16_t addend() const { return static_cast<std::int16_t>(extra_); }
  [[nodiscard]] constexpr ExpressionPlace place() const { return {static_cast<std::uint32_t>(value_), extra_}; }
  // As RegisterRule's.
  [[nodiscard]] constexpr bool operator==(const CfaRule& other) const = default;

 private:
  constexpr CfaRule(Kind kind, std::int32_t value, std::uint16_t extra, RegisterNumber reg)
      : value_(value), extra_(extra), reg_(static_cast<std::uint8_t>(reg)), kind_(kind) {}

  std::int32_t value_;   // an offset, or where an expression is
  std::uint16_t extra_;  // the addend, or the expression's size
  std::uint8_t reg_;
  Kind kind_;
};
static_assert(sizeof(CfaRule) == 8 && std::is_trivially_copyable_v<CfaRule>);

// The full projection: every register the row says something about, in ascending register number.
// A register without an entry has the architecture's default (callee-saved: same value; others: unknown).
struct RegisterEntry {
  RegisterNumber reg;
  RegisterRule rule;
};

// Fixed capacity, so that evaluating rows allocates nothing: x0-x30, sp and d8-d15 where a context is installed, or the
// 15 general and 32 vector registers of an x86-64 function that preserves all. Construction is free and a copy costs
// what is in use.
class RegisterRules {
 public:
  static constexpr std::size_t kCapacity = 48;

  // Linear in the number of entries, of which there are seldom more than eight.
  [[nodiscard]] const RegisterRule* find(RegisterNumber reg) const;
  // False if `reg` is above kMaxRowRegister, or the table is full and `reg` is not in it.
  [[nodiscard]] bool set(RegisterNumber reg, const RegisterRule& rule);
  // The same for a register above all that are in it, of which there are less than kCapacity. Constant.
  void append(RegisterNumber reg, const RegisterRule& rule) {
    regs_[size_] = static_cast<std::uint8_t>(reg);
    rules_[size_++] = rule;
  }
  void erase(RegisterNumber reg);
  void clear() { size_ = 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

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

  RegisterRules() {}  // NOLINT(modernize-use-equals-default): the storage stays uninitialised, of constants too
  RegisterRules(const RegisterRules& other) { *this = other; }
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): memmove bears it
  RegisterRules& operator=(const RegisterRules& other) {
    // Eight at a time, each of a size known to the compiler: shorter than a call of memcpy for what is in use.
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

struct FrameRow {
  std::uint64_t begin = 0;  // first address the row holds for
  std::uint64_t end = 0;    // first address it no longer holds for
  ByteView expressions;     // what the rules' expressions are parts of; belongs to whoever made the row
  CfaRule cfa = CfaRule::at(0, 0);
  RegisterRule return_address = RegisterRule::undefined();  // in_register for a leaf that keeps it in the link register
  RegisterRules registers;                                  // without the return-address column
  bool signal_frame = false;   // the caller's pc is an interrupted instruction, not a return address
  bool return_signed = false;  // AArch64: the return address carries a pointer authentication code

  // The bytes of a rule's expression.
  [[nodiscard]] ByteView expression(const RegisterRule& rule) const { return expression_at(rule.place()); }
  [[nodiscard]] ByteView expression(const CfaRule& rule) const { return expression_at(rule.place()); }
  // Where a part of `expressions` stands; nothing if it is none, or beyond what a rule has room for (4 GiB; 64 KiB).
  [[nodiscard]] std::optional<ExpressionPlace> place_of(ByteView expression) const;

 private:
  [[nodiscard]] ByteView expression_at(ExpressionPlace place) const {
    return expressions.sub(place.offset, place.size).value_or(ByteView());
  }
};
static_assert(sizeof(FrameRow) <= 512);

}  // namespace windlass
