#include <cstdint>

#include "formats/dwarf/expression.h"
#include "formats/dwarf/expression_ops.h"
#include "formats/dwarf/operand_stack.h"

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
    if (stack_.empty()) return error(ErrorCode::kMalformed, "expression leaves nothing on the stack");
    return stack_.top();
  }

 private:
  using Done = Expected<void>;

  [[nodiscard]] Failure error(ErrorCode code, const char* what, std::uint64_t detail = 0) const {
    return fail(code, what, view_.origin() + at_, detail);
  }
  [[nodiscard]] Failure underflow() const {
    return error(ErrorCode::kMalformed, "expression takes more than is on the stack");
  }

  [[nodiscard]] Done done(StackFault fault, std::uint8_t operation = 0) const {
    switch (fault) {
      case StackFault::kNone: return {};
      case StackFault::kTooFew: return underflow();
      case StackFault::kTooMany: return error(ErrorCode::kLimit, "expression's stack is too deep");
      case StackFault::kDivisionByZero: return error(ErrorCode::kMalformed, "expression divides by zero");
      case StackFault::kNotOfStack:
      case StackFault::kOtherType: break;  // all values here are of one type
    }
    return error(ErrorCode::kUnsupported, "operation has no meaning in frame information", operation);
  }

  Done push(std::uint64_t value) { return done(stack_.push(value)); }
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
    if (stack_.empty()) return underflow();
    return push(target_.read_memory(stack_.take().value, static_cast<unsigned>(size)));
  }

  Done push_register(std::uint64_t reg, std::uint64_t offset) {
    const auto value = target_.read_register(reg);
    if (!value) return Failure(value.error());
    return push(*value + offset);
  }

  Done step(const ExpressionOp& op);

  ExpressionReader reader_;
  ByteView view_;
  const ExpressionTarget& target_;
  std::uint64_t at_ = 0;
  OperandStack stack_{target_.address_size == 4U ? 4U : 8U};
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
      if (stack_.empty()) return underflow();
      return stack_.take().value != 0 ? jump(op.first) : Done{};
    }
    case DW_OP_call_frame_cfa:
      // Forbidden in frame information (DWARF 5 section 6.4.2): it would ask for itself.
      return error(ErrorCode::kMalformed, "expression asks for the CFA it helps to find");
    default: return done(stack_.apply(code, op.first), code);
  }
}

}  // namespace

Expected<std::uint64_t> evaluate_expression(ByteView expression, const ExpressionTarget& target) {
  return Evaluator(expression, target).run();
}

}  // namespace windlass::dwarf
