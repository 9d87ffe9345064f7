#include "formats/dwarf/operand_stack.h"

#include <algorithm>
#include <utility>

#include "formats/dwarf/expression_ops.h"

namespace windlass::dwarf {
namespace {

std::uint64_t extended(std::uint64_t value, OperandType type) {
  const unsigned unused = 64 - 8 * unsigned{type.size};
  if (!type.is_signed) return value << unused >> unused;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
}

}  // namespace

StackFault OperandStack::push(std::uint64_t value, OperandType type) {
  if (size_ == kMaxExpressionStack) return StackFault::kTooMany;
  if (type.size != 0)
    value = extended(value, type);
  else if (word_size_ == 4)
    value = static_cast<std::uint32_t>(value);
  values_[size_] = value;
  types_[size_++] = type;
  return StackFault::kNone;
}

StackFault OperandStack::apply(std::uint8_t operation, std::uint64_t first) {
  switch (operation) {
    case DW_OP_dup: return push_copy(0);
    case DW_OP_over: return push_copy(1);
    case DW_OP_pick: return push_copy(first);
    case DW_OP_drop:
    case DW_OP_swap:
    case DW_OP_rot: return reorder(operation);
    case DW_OP_abs:
    case DW_OP_neg:
    case DW_OP_not:
    case DW_OP_plus_uconst: return unary(operation, first);
    default: return binary(operation);
  }
}

StackFault OperandStack::push_copy(std::uint64_t below_top) {
  if (below_top >= size_) return StackFault::kTooFew;
  const std::size_t at = size_ - 1 - below_top;
  return push(values_[at], types_[at]);
}

StackFault OperandStack::reorder(std::uint8_t operation) {
  const std::size_t needs = operation == DW_OP_drop ? 1 : operation == DW_OP_swap ? 2 : 3;
  if (size_ < needs) return StackFault::kTooFew;
  if (operation == DW_OP_drop) {
    --size_;
    return StackFault::kNone;
  }
  // The top goes below the others.
  std::rotate(values_ + size_ - needs, values_ + size_ - 1, values_ + size_);
  std::rotate(types_ + size_ - needs, types_ + size_ - 1, types_ + size_);
  return StackFault::kNone;
}

StackFault OperandStack::unary(std::uint8_t operation, std::uint64_t first) {
  if (empty()) return StackFault::kTooFew;
  const Operand operand = take();
  const std::uint64_t value = operand.value;
  switch (operation) {
    case DW_OP_abs: return push(as_signed(operand) < 0 ? 0 - value : value, operand.type);
    case DW_OP_neg: return push(0 - value, operand.type);
    case DW_OP_not: return push(~value, operand.type);
    default: return push(value + first, operand.type);
  }
}

std::int64_t OperandStack::as_signed(const Operand& operand) const {
  const bool is_short = operand.type.size == 0 && word_size_ == 4;
  return is_short ? static_cast<std::int32_t>(operand.value) : static_cast<std::int64_t>(operand.value);
}

StackFault OperandStack::binary(std::uint8_t operation) {
  if (operation < DW_OP_and || operation > DW_OP_ne) return StackFault::kNotOfStack;
  if (size_ < 2) return StackFault::kTooFew;
  const Operand by = take(), of = take();
  if (operation == DW_OP_shl || operation == DW_OP_shr || operation == DW_OP_shra)
    return shift(operation, of, by.value);
  const auto is_signed = [](OperandType type) { return type.size == 0 || type.is_signed; };
  if (size_of(of.type) != size_of(by.type) || is_signed(of.type) != is_signed(by.type)) return StackFault::kOtherType;
  const std::uint64_t left = of.value, right = by.value;
  const std::int64_t a = as_signed(of), b = as_signed(by);
  switch (operation) {
    case DW_OP_and: return push(left & right, of.type);
    case DW_OP_or: return push(left | right, of.type);
    case DW_OP_xor: return push(left ^ right, of.type);
    case DW_OP_plus: return push(left + right, of.type);
    case DW_OP_minus: return push(left - right, of.type);
    case DW_OP_mul: return push(left * right, of.type);
    case DW_OP_div:
      if (right == 0) return StackFault::kDivisionByZero;
      if (!is_signed(of.type)) return push(left / right, of.type);
      // The one quotient that does not fit wraps to itself.
      return push(b == -1 ? 0 - left : static_cast<std::uint64_t>(a / b), of.type);
    case DW_OP_mod:
      if (right == 0) return StackFault::kDivisionByZero;
      if (!of.type.is_signed) return push(left % right, of.type);
      return push(b == -1 ? 0 : static_cast<std::uint64_t>(a % b), of.type);
    default: return is_signed(of.type) ? compare(operation, a, b) : compare(operation, left, right);
  }
}

StackFault OperandStack::shift(std::uint8_t operation, const Operand& of, std::uint64_t by) {
  const unsigned bits = 8 * size_of(of.type);
  const auto as = [&](bool is_signed) {
    return of.type.size == 0 ? of.value : extended(of.value, {of.type.size, is_signed});
  };
  if (operation == DW_OP_shl) return push(by < bits ? of.value << by : 0, of.type);
  if (operation == DW_OP_shr) return push(by < bits ? as(false) >> by : 0, of.type);
  const std::int64_t value = as_signed({as(true), of.type});
  return push(static_cast<std::uint64_t>(value >> std::min<std::uint64_t>(by, bits - 1)), of.type);
}

// The result is of the generic type.
template <typename Number>
StackFault OperandStack::compare(std::uint8_t operation, Number left, Number right) {
  switch (operation) {
    case DW_OP_eq: return push(left == right);
    case DW_OP_ne: return push(left != right);
    case DW_OP_ge: return push(left >= right);
    case DW_OP_gt: return push(left > right);
    case DW_OP_le: return push(left <= right);
    case DW_OP_lt: return push(left < right);
    default: return StackFault::kNotOfStack;
  }
}

}  // namespace windlass::dwarf
