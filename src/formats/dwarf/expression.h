// DWARF expressions: decoding, text, and a bounded evaluator. DWARF 5 sections 2.5 and 7.7.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/registers.h"
#include "windlass/bytes.h"
#include "windlass/function_ref.h"

namespace windlass::dwarf {

// One decoded operation. Operands as the opcode has them, sign- or zero-extended; a block is in `block`.
struct ExpressionOp {
  std::uint8_t opcode = 0;
  std::uint64_t offset = 0;  // within the expression
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  ByteView block;
};

// Walks an expression. All of DWARF 5's operations and GNU's; an unknown one is an error, as its length is unknown.
class ExpressionReader {
 public:
  // address_size: bytes of DW_OP_addr's operand, 4 or 8.
  explicit ExpressionReader(ByteView expression, unsigned address_size = 8)
      : cursor_(expression), address_size_(address_size) {}

  [[nodiscard]] bool at_end() const { return cursor_.at_end(); }
  [[nodiscard]] std::uint64_t position() const { return cursor_.position(); }
  // Positions past the end are allowed by no caller: the evaluator checks before.
  void seek(std::uint64_t position) { cursor_ = ByteCursor(cursor_.view(), position); }
  [[nodiscard]] Expected<ExpressionOp> next();

 private:
  ByteCursor cursor_;
  unsigned address_size_;
};

// "DW_OP_deref"; empty for an unknown opcode.
[[nodiscard]] std::string_view expression_op_name(std::uint8_t opcode);

// "DW_OP_breg7 (rsp): 8; DW_OP_deref", as readelf writes it. Damage ends the text with "<error>".
void append_expression_text(std::string& out, ByteView expression, Architecture architecture);
[[nodiscard]] std::string expression_text(ByteView expression, Architecture architecture);

// What an evaluation may see of the target. Keep the callables alive while evaluating.
struct ExpressionTarget {
  // The value of a register by DWARF number.
  FunctionRef<Expected<std::uint64_t>(std::uint64_t reg)> read_register;
  // `size` bytes (1 to 8) at an address, zero-extended.
  FunctionRef<Expected<std::uint64_t>(std::uint64_t address, unsigned size)> read_memory;
  // Pushed first: the CFA, for rules that want it.
  std::optional<std::uint64_t> initial;
  // What DW_OP_addr is moved by: the load bias.
  std::uint64_t bias = 0;
  // Bytes of an address, 4 or 8: what DW_OP_deref loads, and how wide the stack's values are (DWARF 5 section 2.5.1.1).
  unsigned address_size = 8;
};

// elfutils' budgets, which no real expression comes near.
inline constexpr std::size_t kMaxExpressionStack = 256;
inline constexpr std::size_t kMaxExpressionSteps = 4096;

// The value on top of the stack at the end. Signal-safe: allocates nothing, takes 3 KiB of stack. Arithmetic wraps. As
// in libgcc, DW_OP_div and comparisons are signed, and DW_OP_mod is not.
//
// Errors: kMalformed for stack underflow, division by zero, a jump outside, or an empty stack. kLimit for the budgets.
// kUnsupported for operations that need debugging information. And the errors of the callbacks.
[[nodiscard]] Expected<std::uint64_t> evaluate_expression(ByteView expression, const ExpressionTarget& target);

}  // namespace windlass::dwarf
