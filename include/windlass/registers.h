// The registers of a frame, for each architecture, by DWARF number. Specifications: System V x86-64 psABI, figure 3.36;
// AADWARF64, table 1; System V Intel386 psABI, table 2.14.
//
// For example, for a walk from a known pc and sp:
//
//   Registers registers(Architecture::kX86_64);
//   registers.set_pc(CodeAddress::instruction(pc));
//   registers.set_sp(sp);
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "windlass/frame_row.h"

namespace windlass {

// The architectures whose stacks can be walked.
enum class Architecture : std::uint8_t { kX86_64, kAArch64, kI386 };
inline constexpr unsigned kArchitectures = 3;

// A code address: an instruction, or a return address. An instruction is looked up as it is. A return address stands
// behind its call, and may be the first byte behind its function; so its lookup address is one less. Only lookup(), the
// fast walk and the BPF C subtract 1.
class CodeAddress {
 public:
  constexpr CodeAddress() = default;
  [[nodiscard]] static constexpr CodeAddress instruction(std::uint64_t value) { return {value, false}; }
  [[nodiscard]] static constexpr CodeAddress return_address(std::uint64_t value) { return {value, true}; }

  [[nodiscard]] constexpr std::uint64_t value() const { return value_; }
  [[nodiscard]] constexpr bool is_return_address() const { return return_address_; }
  // The address by which to look up rows, symbols and lines.
  [[nodiscard]] constexpr std::uint64_t lookup() const { return value_ - (return_address_ ? 1 : 0); }
  bool operator==(const CodeAddress&) const = default;

 private:
  constexpr CodeAddress(std::uint64_t value, bool is_return) : value_(value), return_address_(is_return) {}
  std::uint64_t value_ = 0;
  bool return_address_ = false;
};

// The registers of a frame, and which of them are known. A value without allocations; signal-safe. All functions take
// constant time, except for_each(). Numbers are:
//
// - x86-64: 0-15 general registers, 16 the pc, 41 mm0, 58 fs.base, 59 gs.base.
// - i386: 0-7 general registers, 8 the pc; 32 bits, zero-extended.
// - AArch64: 0-30 x0-x30, 31 sp, 32 the pc, 34 ra_sign_state, 72-79 d8-d15 (the half that calls preserve).
//
// fs.base and gs.base are known for a thread whose registers were read from outside. They say where the thread's own
// data is (System V), and where Windows has its TEB. Callers' frames do not repeat them. mm0 is known for a thread of a
// Windows minidump, unless it is 0. The context of ARM64EC code has lr there.
class Registers {
 public:
  // The number of registers that can be kept.
  static constexpr unsigned kSlots = 44;

  constexpr Registers() = default;
  explicit constexpr Registers(Architecture architecture) : architecture_(architecture) {}

  [[nodiscard]] constexpr Architecture architecture() const { return architecture_; }

  // The DWARF numbers of the stack pointer, the pc and the frame pointer.
  [[nodiscard]] static constexpr RegisterNumber sp_number(Architecture a) {
    return a == Architecture::kX86_64 ? 7 : a == Architecture::kAArch64 ? 31 : 4;
  }
  [[nodiscard]] static constexpr RegisterNumber pc_number(Architecture a) {
    return a == Architecture::kX86_64 ? 16 : a == Architecture::kAArch64 ? 32 : 8;
  }
  [[nodiscard]] static constexpr RegisterNumber fp_number(Architecture a) {
    return a == Architecture::kX86_64 ? 6 : a == Architecture::kAArch64 ? 29 : 5;
  }
  // Bytes of an address, of a pushed return address, and of a saved general register.
  [[nodiscard]] static constexpr unsigned word_size(Architecture a) { return a == Architecture::kI386 ? 4 : 8; }

  // The slot of a register: a dense number below kSlots. kSlots if the register cannot be kept.
  [[nodiscard]] static constexpr unsigned slot_of(Architecture architecture, std::uint64_t reg) {
    if (architecture == Architecture::kX86_64) {
      if (reg <= 16) return static_cast<unsigned>(reg);
      if (reg == kMm0) return kMm0Slot;
      return reg == kFsBase ? kFsBaseSlot : reg == kGsBase ? kGsBaseSlot : kSlots;
    }
    if (architecture == Architecture::kI386) return reg <= 8 ? static_cast<unsigned>(reg) : kSlots;
    if (reg <= 34) return reg == kFsBaseSlot ? kSlots : static_cast<unsigned>(reg);
    return reg >= kFirstVector && reg < kFirstVector + 8 ? kFirstVectorSlot + static_cast<unsigned>(reg - kFirstVector)
                                                         : kSlots;
  }
  // The register in a slot.
  [[nodiscard]] static constexpr RegisterNumber number_of(Architecture architecture, unsigned slot) {
    if (slot == kMm0Slot && architecture == Architecture::kX86_64) return kMm0;
    if (slot == kFsBaseSlot) return kFsBase;
    if (slot == kGsBaseSlot) return kGsBase;
    return static_cast<RegisterNumber>(slot < kFirstVectorSlot ? slot : slot - kFirstVectorSlot + kFirstVector);
  }
  [[nodiscard]] constexpr unsigned slot_of(std::uint64_t reg) const { return slot(reg); }
  // True if a register of this number can be kept.
  [[nodiscard]] constexpr bool holds(std::uint64_t reg) const { return slot(reg) < kSlots; }
  // True if the register's value is known.
  [[nodiscard]] constexpr bool has(std::uint64_t reg) const {
    const unsigned s = slot(reg);
    return s < kSlots && (known_ >> s & 1) != 0;
  }
  // The value, or 0 if it is not known.
  [[nodiscard]] constexpr std::uint64_t get(std::uint64_t reg) const {
    const unsigned s = slot(reg);
    return s < kSlots && (known_ >> s & 1) != 0 ? value_[s] : 0;
  }
  // Sets a value. Does nothing for a register that cannot be kept.
  constexpr void set(std::uint64_t reg, std::uint64_t value) {
    const unsigned s = slot(reg);
    if (s >= kSlots) return;
    value_[s] = value;
    known_ |= std::uint64_t{1} << s;
  }
  // Makes a register unknown.
  constexpr void forget(std::uint64_t reg) {
    const unsigned s = slot(reg);
    if (s < kSlots) known_ &= ~(std::uint64_t{1} << s);
  }
  constexpr void forget_all() { known_ = 0; }

  // The pc and the stack pointer. The numbers of both are also their slots.
  [[nodiscard]] constexpr CodeAddress pc() const {
    const std::uint64_t value = get_slot(pc_number(architecture_));
    return pc_is_return_address_ ? CodeAddress::return_address(value) : CodeAddress::instruction(value);
  }
  constexpr void set_pc(CodeAddress pc) {
    set_slot(pc_number(architecture_), pc.value());
    pc_is_return_address_ = pc.is_return_address();
  }
  [[nodiscard]] constexpr std::uint64_t sp() const { return get_slot(sp_number(architecture_)); }
  constexpr void set_sp(std::uint64_t sp) { set_slot(sp_number(architecture_), sp); }
  [[nodiscard]] constexpr bool has_sp() const { return has_slot(sp_number(architecture_)); }

  // The same by slot instead of by number: for callers that know the slot. A slot is below kSlots.
  [[nodiscard]] constexpr bool has_slot(unsigned s) const { return (known_ >> s & 1) != 0; }
  [[nodiscard]] constexpr std::uint64_t get_slot(unsigned s) const { return has_slot(s) ? value_[s] : 0; }
  // The word in a slot, even if the register is not known: for callers that check known_slots().
  [[nodiscard]] constexpr std::uint64_t stored(unsigned s) const { return value_[s]; }
  constexpr void set_slot(unsigned s, std::uint64_t value) {
    value_[s] = value;
    known_ |= std::uint64_t{1} << s;
  }
  // Sets several slots without a loop: value(i) goes to slots[i].
  template <typename Value, unsigned... kIndex>
  constexpr void set_slots(const std::uint8_t* slots, Value&& value, std::integer_sequence<unsigned, kIndex...>) {
    std::uint64_t known = known_;
    ((value_[slots[kIndex]] = value(kIndex), known |= std::uint64_t{1} << slots[kIndex]), ...);
    known_ = known;
  }
  // A bit for each slot whose register is known.
  [[nodiscard]] constexpr std::uint64_t known_slots() const { return known_; }
  // Makes all registers unknown whose slot's bit is not set.
  constexpr void keep_slots(std::uint64_t slots) { known_ &= slots; }

  // Calls callback(number, value) for each known register, ascending by number.
  template <typename Callback>
  constexpr void for_each(Callback&& callback) const {
    for (std::uint64_t rest = known_; rest != 0; rest &= rest - 1) {
      const auto s = static_cast<unsigned>(std::countr_zero(rest));
      callback(number_of(architecture_, s), value_[s]);
    }
  }

 private:
  static constexpr RegisterNumber kMm0 = 41, kFsBase = 58, kGsBase = 59;
  static constexpr unsigned kFsBaseSlot = 33, kGsBaseSlot = 35;  // Free on AArch64.
  static constexpr unsigned kMm0Slot = 34;                       // AArch64: ra_sign_state.
  static constexpr unsigned kFirstVectorSlot = 36;
  static constexpr RegisterNumber kFirstVector = 72;
  [[nodiscard]] constexpr unsigned slot(std::uint64_t reg) const { return slot_of(architecture_, reg); }

  std::uint64_t value_[kSlots] = {};
  std::uint64_t known_ = 0;
  Architecture architecture_ = Architecture::kX86_64;
  bool pc_is_return_address_ = false;
};

}  // namespace windlass
