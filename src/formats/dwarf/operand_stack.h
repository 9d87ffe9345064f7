// The stack of a DWARF expression, and the operations that need nothing else (DWARF 5 sections 2.5.1.3 and 2.5.1.4).
// The evaluators of frame information and of locations share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/dwarf/expression.h"

namespace windlass::dwarf {

// Of a value. Size 0: the generic type, which is as wide as an address and of no sign (DWARF 5 section 2.5.1). It
// stands for a signed one beside operands with a type: Clang multiplies a `long` by DW_OP_lit3, and so does GDB.
struct OperandType {
  std::uint8_t size;
  bool is_signed;
};
struct Operand {
  std::uint64_t value;  // sign- or zero-extended from its type to 64 bits; the generic type wraps at its width
  OperandType type;
};

enum class StackFault : std::uint8_t { kNone, kNotOfStack, kTooFew, kTooMany, kDivisionByZero, kOtherType };

// Allocates nothing. After a fault the stack is in no certain state.
class OperandStack {
 public:
  // `word_size`: bytes of an address, 4 or 8.
  explicit OperandStack(unsigned word_size) : word_size_(word_size) {}

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  void clear() { size_ = 0; }
  // Not of an empty one, these two.
  [[nodiscard]] std::uint64_t top() const { return values_[size_ - 1]; }
  Operand take() {
    --size_;
    return {values_[size_], types_[size_]};
  }
  [[nodiscard]] StackFault push(std::uint64_t value, OperandType type = {0, false});
  // Performs DW_OP_dup to _rot, _abs, _neg, _not, _plus_uconst, those of two operands, and comparisons. `first`: what
  // follows the operation in the expression. kNotOfStack: it is none of these.
  [[nodiscard]] StackFault apply(std::uint8_t operation, std::uint64_t first);
  // In bytes.
  [[nodiscard]] unsigned size_of(OperandType type) const { return type.size == 0 ? word_size_ : type.size; }

 private:
  [[nodiscard]] StackFault push_copy(std::uint64_t below_top);
  [[nodiscard]] StackFault reorder(std::uint8_t operation);
  [[nodiscard]] StackFault unary(std::uint8_t operation, std::uint64_t first);
  [[nodiscard]] StackFault binary(std::uint8_t operation);
  [[nodiscard]] StackFault shift(std::uint8_t operation, const Operand& of, std::uint64_t by);
  template <typename Number>
  [[nodiscard]] StackFault compare(std::uint8_t operation, Number left, Number right);
  [[nodiscard]] std::int64_t as_signed(const Operand& operand) const;

  unsigned word_size_;
  std::size_t size_ = 0;
  std::uint64_t values_[kMaxExpressionStack];
  OperandType types_[kMaxExpressionStack];
};

}  // namespace windlass::dwarf
