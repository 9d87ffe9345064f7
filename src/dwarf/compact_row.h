// The row in force at one address, all registers, in some 450 bytes and without allocation: what walkers step by. The
// same content as FrameRow for the registers a walk can hold.
#pragma once

#include "dwarf/cfi.h"
#include "dwarf/eh_frame_hdr.h"
#include "windlass/frame_row.h"
#include "windlass/registers.h"

namespace windlass::dwarf {

// A RegisterRule in 8 bytes.
struct CompactRule {
  enum class Kind : std::uint8_t { kUndefined, kSame, kAtCfa, kCfaValue, kInRegister, kAtExpression, kExpressionValue };
  std::int32_t value = 0;  // an offset, a register, or (unsigned) where in its section an expression starts
  std::uint16_t size = 0;  // of the expression
  Kind kind = Kind::kSame;

  [[nodiscard]] RegisterRule rule(ByteView section) const;
};
static_assert(sizeof(CompactRule) == 8);

// The registers that a row says something about, as RegisterRules gives them: a range of RegisterEntry, ascending.
class CompactRules {
 public:
  explicit CompactRules(Architecture architecture = Architecture::kX86_64) : architecture_(architecture) {}

  // Registers that no walk holds (vectors) are left out: always true for them.
  bool set(std::uint64_t reg, const CompactRule& rule) {
    const unsigned slot = slot_of(reg);
    if (slot >= Registers::kSlots) return true;
    rule_[slot] = rule;
    set_ |= std::uint64_t{1} << slot;
    return true;
  }
  void erase(std::uint64_t reg) {
    const unsigned slot = slot_of(reg);
    if (slot < Registers::kSlots) set_ &= ~(std::uint64_t{1} << slot);
  }
  [[nodiscard]] const CompactRule* find(std::uint64_t reg) const {
    const unsigned slot = slot_of(reg);
    return slot < Registers::kSlots && (set_ >> slot & 1) != 0 ? &rule_[slot] : nullptr;
  }
  void set_section(ByteView section) { section_ = section; }
  [[nodiscard]] ByteView section() const { return section_; }

  class Iterator {
   public:
    Iterator(const CompactRules& rules, std::uint64_t rest) : rules_(rules), rest_(rest) {}
    RegisterEntry operator*() const {
      const auto slot = static_cast<unsigned>(std::countr_zero(rest_));
      return {Registers::number_of(slot), rules_.rule_[slot].rule(rules_.section_)};
    }
    Iterator& operator++() {
      rest_ &= rest_ - 1;
      return *this;
    }
    bool operator==(const Iterator& other) const { return rest_ == other.rest_; }

   private:
    const CompactRules& rules_;
    std::uint64_t rest_;
  };
  [[nodiscard]] Iterator begin() const { return {*this, set_}; }
  [[nodiscard]] Iterator end() const { return {*this, 0}; }

 private:
  [[nodiscard]] unsigned slot_of(std::uint64_t reg) const { return Registers::slot_of(architecture_, reg); }

  std::uint64_t set_ = 0;  // by slot; the rules of others are not initialised
  ByteView section_;       // what expressions are offsets in
  Architecture architecture_;
  CompactRule rule_[Registers::kSlots];
};

// As FrameRow; see there.
struct CompactRow {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  CfaRule cfa = CfaRegister{0, 0};
  RegisterRule return_address = Undefined{};
  CompactRules registers;
  bool signal_frame = false;
  bool return_signed = false;

  [[nodiscard]] FrameRow full() const;
};

// The row in force at `pc` of an FDE that covers it. Its expressions are views into the section. Allocates nothing;
// thread-safe, signal-safe; under 3 KiB of stack. Linear in the FDE's instructions up to `pc`. Errors: as
// RowEvaluator::row_at, and kLimit for offsets beyond 2 GiB and states nested deeper than InlineStorage has room.
[[nodiscard]] Expected<void> compact_row_at(const CfiSection& section, const Fde& fde, std::uint64_t pc,
                                            CompactRow& row);

}  // namespace windlass::dwarf
