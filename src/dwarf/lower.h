// CFI lowered to full rows.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "dwarf/cfi.h"
#include "dwarf/interpreter.h"
#include "windlass/frame_row.h"

namespace windlass::dwarf {

// The interpreter's state policy that keeps everything.
struct FullState {
  bool def_cfa(std::uint64_t reg, std::int64_t offset);
  bool def_cfa_register(std::uint64_t reg);
  bool def_cfa_offset(std::int64_t offset);
  bool def_cfa_expression(ByteView expression);
  bool at_cfa(std::uint64_t reg, std::int64_t offset) { return set(reg, AtCfa{offset}); }
  bool cfa_value(std::uint64_t reg, std::int64_t offset) { return set(reg, CfaValue{offset}); }
  bool in_register(std::uint64_t reg, std::uint64_t source);
  bool at_expression(std::uint64_t reg, ByteView expression) { return set(reg, AtExpression{expression}); }
  bool expression_value(std::uint64_t reg, ByteView expression) { return set(reg, ExpressionValue{expression}); }
  bool same_value(std::uint64_t reg) { return set(reg, SameValue{}); }
  bool undefined(std::uint64_t reg) { return set(reg, Undefined{}); }
  bool restore(std::uint64_t reg, const FullState& initial);
  void toggle_return_signed() { return_signed = !return_signed; }

  bool set(std::uint64_t reg, const RegisterRule& rule);

  // `def_cfa_register` after an expression takes the last offset there was, as libgcc does: hand-written .cfi relies
  // on it, DWARF 5 section 6.4.2.2 calls it invalid. So both forms are kept.
  enum class Cfa : std::uint8_t { kNone, kRegister, kExpression } cfa = Cfa::kNone;
  bool return_signed = false;
  RegisterNumber cfa_register = 0;
  std::int64_t cfa_offset = 0;
  ByteView cfa_expression;
  RegisterRules registers;
};

// Evaluates full rows of one section. Holds caches: keep one for many FDEs. Allocates only when constructed.
class RowEvaluator {
 public:
  explicit RowEvaluator(const CfiSection& section) : section_(section), interpreter_(section) {}

  // Calls back for each row, ascending, without holes; the row is reused, so copy what you keep. Its expressions are
  // views into the section. An error ends the FDE; the rows before the bad instruction's location have been given.
  [[nodiscard]] Expected<void> for_each_row(const Fde& fde, FunctionRef<void(const FrameRow&)> callback);

  // The row in force at `pc`. kNotFound outside the FDE. Linear in the FDE's instructions up to `pc`.
  [[nodiscard]] Expected<FrameRow> row_at(const Fde& fde, std::uint64_t pc);

 private:
  [[nodiscard]] bool fill(const Fde& fde, std::uint64_t begin, std::uint64_t end, const FullState& state);

  CfiSection section_;
  CfaInterpreter<FullState> interpreter_;
  FrameRow row_;
};

// The rows of one FDE, for a caller that has only one; see RowEvaluator.
[[nodiscard]] Expected<void> for_each_row(const CfiSection& section, const Fde& fde,
                                          FunctionRef<void(const FrameRow&)> callback);

}  // namespace windlass::dwarf
