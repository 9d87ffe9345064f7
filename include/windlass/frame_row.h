// The one row type every unwind format is lowered to: from a code address on, how to get from the callee's registers
// to the caller's. No parsing and no I/O here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <variant>

#include "windlass/bytes.h"

namespace windlass {

// A register by its DWARF number in the architecture at hand (System V x86-64 psABI figure 3.36, AADWARF64 table 1).
using RegisterNumber = std::uint16_t;

// ---- where the caller's value of one register is ------------------------------------------------------------------
struct Undefined {};  // value = unrecoverable
struct SameValue {};  // value = register
struct AtCfa {
  std::int64_t offset;
};  // value = [CFA + offset]
struct CfaValue {
  std::int64_t offset;
};  // value = CFA + offset
struct InRegister {
  RegisterNumber reg;
};  // value = reg
struct AtExpression {
  ByteView expression;
};  // value = [expression with CFA pushed]
struct ExpressionValue {
  ByteView expression;
};  // value = expression with CFA pushed
using RegisterRule = std::variant<Undefined, SameValue, AtCfa, CfaValue, InRegister, AtExpression, ExpressionValue>;

// ---- where the canonical frame address is -------------------------------------------------------------------------
struct CfaRegister {
  RegisterNumber reg;
  std::int64_t offset;
};  // CFA = reg + offset
struct CfaExpression {
  ByteView expression;
};  // CFA = expression
using CfaRule = std::variant<CfaRegister, CfaExpression>;

// The full projection: every register the row says something about, in ascending register number.
// A register without an entry has the architecture's default (callee-saved: same value; others: unknown).
struct RegisterEntry {
  RegisterNumber reg;
  RegisterRule rule;
};

// Fixed capacity, so that evaluating rows allocates nothing. 128 columns hold every register of both architectures.
// Construction is free and a copy costs what is in use.
class RegisterRules {
 public:
  static constexpr std::size_t kCapacity = 128;

  // Linear in the number of entries, of which there are seldom more than eight.
  [[nodiscard]] const RegisterRule* find(RegisterNumber reg) const;
  // False if the table is full and `reg` is not in it.
  [[nodiscard]] bool set(RegisterNumber reg, const RegisterRule& rule);
  // The same for a register above all that are in it, of which there are less than kCapacity. Constant.
  template <typename Rule>
  void append(RegisterNumber reg, const Rule& rule) {
    ::new (static_cast<void*>(entries() + size_++)) RegisterEntry{reg, rule};
  }
  void erase(RegisterNumber reg);
  void clear() { size_ = 0; }
  [[nodiscard]] const RegisterEntry* begin() const { return reinterpret_cast<const RegisterEntry*>(storage_); }
  [[nodiscard]] const RegisterEntry* end() const { return begin() + size_; }
  [[nodiscard]] std::size_t size() const { return size_; }

  RegisterRules() {}  // NOLINT(modernize-use-equals-default): the storage stays uninitialised, of constants too
  RegisterRules(const RegisterRules& other) { *this = other; }
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): memmove bears it
  RegisterRules& operator=(const RegisterRules& other) {
    size_ = other.size_;
    std::memmove(storage_, other.storage_, size_ * sizeof(RegisterEntry));
    return *this;
  }

 private:
  static_assert(std::is_trivially_copyable_v<RegisterEntry>);  // so bytes may be copied, and copying makes objects

  [[nodiscard]] RegisterEntry* entries() { return reinterpret_cast<RegisterEntry*>(storage_); }

  std::size_t size_ = 0;
  alignas(RegisterEntry) std::byte storage_[kCapacity * sizeof(RegisterEntry)];
};

struct FrameRow {
  std::uint64_t begin = 0;  // first address the row holds for
  std::uint64_t end = 0;    // first address it no longer holds for
  CfaRule cfa = CfaRegister{0, 0};
  RegisterRule return_address = Undefined{};  // InRegister for a leaf that keeps it in the link register
  RegisterRules registers;                    // without the return-address column
  bool signal_frame = false;                  // the caller's pc is an interrupted instruction, not a return address
  bool return_signed = false;                 // AArch64: the return address carries a pointer authentication code
};

}  // namespace windlass
