#include <cstdint>
#include <utility>

#include "formats/dwarf/expression.h"
#include "formats/dwarf/expression_ops.h"

namespace windlass::dwarf {
namespace {

class Evaluator {
 public:
  Evaluator(ByteView expression, const ExpressionTarget& target)
      : reader_(expression, target.address_size), view_(expression), target_(target) {}

  Expected<std::uint64_t> run() {
    if (target_.initial) (void)push(*target_.initial);
    for (std::size_t steps = 0; !reader_.at_end(); ++steps) {
      if (steps == kMaxExpressionSteps) return error(ErrorCode::kLimit, "expression runs too long");
      const auto op = reader_.next();
      if (!op) return Failure(op.error());
      at_ = op->offset;
      if (auto done = step(*op); !done) return Failure(done.error());
    }
    if (size_ == 0) return error(ErrorCode::kMalformed, "expression leaves nothing on the stack");
    return stack_[size_ - 1];
  }

 private:
  using Done = Expected<void>;

  [[nodiscard]] Failure error(ErrorCode code, const char* what, std::uint64_t detail = 0) const {
    return fail(code, what, view_.origin() + at_, detail);
  }
  [[nodiscard]] Failure underflow() const {
    return error(ErrorCode::kMalformed, "expression takes more than is on the stack");
  }

  // Values wrap at the width of an address.
  [[nodiscard]] std::uint64_t word(std::uint64_t value) const {
    return target_.address_size == 4 ? static_cast<std::uint32_t>(value) : value;
  }
  [[nodiscard]] std::int64_t as_signed(std::uint64_t value) const {
    return target_.address_size == 4 ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
  }

  Done push(std::uint64_t value) {
    if (size_ == kMaxExpressionStack) return error(ErrorCode::kLimit, "expression's stack is too deep");
    stack_[size_++] = word(value);
    return {};
  }
  Done push(const Expected<std::uint64_t>& value) {
    if (!value) return Failure(value.error());
    return push(*value);
  }

  Done jump(std::uint64_t distance) {
    const std::uint64_t to = reader_.position() + distance;  // wraps where the distance is negative
    if (to > view_.size()) return error(ErrorCode::kMalformed, "expression jumps outside itself", to);
    reader_.seek(to);
    return {};
  }

  Done dereference(std::uint64_t size) {
    if (size == 0 || size > 8) return error(ErrorCode::kMalformed, "dereference of an impossible size", size);
    if (size_ == 0) return underflow();
    const auto value = target_.read_memory(stack_[size_ - 1], static_cast<unsigned>(size));
    if (!value) return Failure(value.error());
    stack_[size_ - 1] = word(*value);
    return {};
  }

  Done push_register(std::uint64_t reg, std::uint64_t offset) {
    const auto value = target_.read_register(reg);
    if (!value) return Failure(value.error());
    return push(*value + offset);
  }

  Done step(const ExpressionOp& op);
  Done stack_step(const ExpressionOp& op);
  Done unary_step(const ExpressionOp& op);
  Done binary_step(const ExpressionOp& op);

  ExpressionReader reader_;
  ByteView view_;
  const ExpressionTarget& target_;
  std::uint64_t at_ = 0;
  std::size_t size_ = 0;
  std::uint64_t stack_[kMaxExpressionStack];
};

Evaluator::Done Evaluator::step(const ExpressionOp& op) {
  const std::uint8_t code = op.opcode;
  if (code >= DW_OP_lit0 && code <= DW_OP_lit31) return push(code - std::uint64_t{DW_OP_lit0});
  // DW_OP_reg<n> names a place, not a value, and has no business here; libgcc takes it for the value, and so must we.
  if (code >= DW_OP_reg0 && code <= DW_OP_reg31) return push_register(code - std::uint64_t{DW_OP_reg0}, 0);
  if (code >= DW_OP_breg0 && code <= DW_OP_breg31) return push_register(code - std::uint64_t{DW_OP_breg0}, op.first);
  switch (code) {
    case DW_OP_addr: return push(op.first + target_.bias);
    case DW_OP_const1u:
    case DW_OP_const1s:
    case DW_OP_const2u:
    case DW_OP_const2s:
    case DW_OP_const4u:
    case DW_OP_const4s:
    case DW_OP_const8u:
    case DW_OP_const8s:
    case DW_OP_constu:
    case DW_OP_consts: return push(op.first);
    case DW_OP_regx: return push_register(op.first, 0);
    case DW_OP_bregx: return push_register(op.first, op.second);
    case DW_OP_deref: return dereference(target_.address_size);
    case DW_OP_deref_size: return dereference(op.first);
    case DW_OP_nop: return {};
    case DW_OP_skip: return jump(op.first);
    case DW_OP_bra: {
      if (size_ == 0) return underflow();
      return stack_[--size_] != 0 ? jump(op.first) : Done{};
    }
    case DW_OP_call_frame_cfa:
      // Forbidden in frame information (DWARF 5 section 6.4.2): it would ask for itself.
      return error(ErrorCode::kMalformed, "expression asks for the CFA it helps to find");
    case DW_OP_dup:
    case DW_OP_drop:
    case DW_OP_over:
    case DW_OP_pick:
    case DW_OP_swap:
    case DW_OP_rot: return stack_step(op);
    case DW_OP_abs:
    case DW_OP_neg:
    case DW_OP_not:
    case DW_OP_plus_uconst: return unary_step(op);
    default: return binary_step(op);
  }
}

Evaluator::Done Evaluator::stack_step(const ExpressionOp& op) {
  const auto needs = [&](std::uint64_t count) { return size_ >= count; };
  std::uint64_t* const top = stack_ + size_ - 1;
  switch (op.opcode) {
    case DW_OP_dup: return needs(1) ? push(*top) : Done(underflow());
    case DW_OP_drop:
      if (!needs(1)) return underflow();
      --size_;
      return {};
    case DW_OP_over: return needs(2) ? push(top[-1]) : Done(underflow());
    case DW_OP_pick: return needs(op.first + 1) ? push(stack_[size_ - 1 - op.first]) : Done(underflow());
    case DW_OP_swap:
      if (!needs(2)) return underflow();
      std::swap(top[0], top[-1]);
      return {};
    default: {  // rot: the top becomes the third, the second the top, the third the second
      if (!needs(3)) return underflow();
      const std::uint64_t first = top[0];
      top[0] = top[-1];
      top[-1] = top[-2];
      top[-2] = first;
      return {};
    }
  }
}

Evaluator::Done Evaluator::unary_step(const ExpressionOp& op) {
  if (size_ == 0) return underflow();
  std::uint64_t& top = stack_[size_ - 1];
  switch (op.opcode) {
    case DW_OP_abs: top = as_signed(top) < 0 ? 0 - top : top; break;
    case DW_OP_neg: top = 0 - top; break;
    case DW_OP_not: top = ~top; break;
    default: top += op.first; break;
  }
  top = word(top);
  return {};
}

Evaluator::Done Evaluator::binary_step(const ExpressionOp& op) {
  const bool is_binary = (op.opcode >= DW_OP_and && op.opcode <= DW_OP_ne);
  if (!is_binary) return error(ErrorCode::kUnsupported, "operation has no meaning in frame information", op.opcode);
  if (size_ < 2) return underflow();
  const std::uint64_t right = stack_[size_ - 1];
  const std::uint64_t left = stack_[size_ - 2];
  const std::int64_t signed_right = as_signed(right);
  const std::int64_t signed_left = as_signed(left);
  std::uint64_t result = 0;
  switch (op.opcode) {
    case DW_OP_and: result = left & right; break;
    case DW_OP_or: result = left | right; break;
    case DW_OP_xor: result = left ^ right; break;
    case DW_OP_plus: result = left + right; break;
    case DW_OP_minus: result = left - right; break;
    case DW_OP_mul: result = left * right; break;
    case DW_OP_div:
      if (right == 0) return error(ErrorCode::kMalformed, "expression divides by zero");
      // The one quotient that does not fit wraps to itself.
      result = signed_right == -1 ? 0 - left : static_cast<std::uint64_t>(signed_left / signed_right);
      break;
    case DW_OP_mod:
      if (right == 0) return error(ErrorCode::kMalformed, "expression divides by zero");
      result = left % right;
      break;
    case DW_OP_shl: result = right < 64 ? left << right : 0; break;
    case DW_OP_shr: result = right < 64 ? left >> right : 0; break;
    case DW_OP_shra: result = static_cast<std::uint64_t>(signed_left >> (right < 64 ? right : 63)); break;
    case DW_OP_eq: result = left == right; break;
    case DW_OP_ne: result = left != right; break;
    case DW_OP_ge: result = signed_left >= signed_right; break;
    case DW_OP_gt: result = signed_left > signed_right; break;
    case DW_OP_le: result = signed_left <= signed_right; break;
    case DW_OP_lt: result = signed_left < signed_right; break;
    default: return error(ErrorCode::kUnsupported, "operation has no meaning in frame information", op.opcode);
  }
  stack_[size_ - 2] = word(result);
  --size_;
  return {};
}

}  // namespace

Expected<std::uint64_t> evaluate_expression(ByteView expression, const ExpressionTarget& target) {
  return Evaluator(expression, target).run();
}

}  // namespace windlass::dwarf
