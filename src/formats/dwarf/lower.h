// CFI lowered to full rows.
#pragma once

#include <cstdint>

#include "formats/dwarf/cfi.h"
#include "formats/dwarf/interpreter.h"
#include "windlass/frame_row.h"
#include "windlass/function_ref.h"

namespace windlass::dwarf {

// The interpreter's state policy that keeps everything: a row that each instruction updates in place. It holds no
// register above kMaxRowRegister and no offset of 2 GiB or more (kLimit).
class FullState {
 public:
  FullState() = default;
  explicit FullState(const CfiSection& section) : architecture_(section.architecture) {
    row_.expressions = section.bytes;
  }

  // What holds before the CIE's instructions.
  void start(const Cie& cie);

  bool def_cfa(std::uint64_t reg, std::int64_t offset);
  bool def_cfa_register(std::uint64_t reg);
  bool def_cfa_offset(std::int64_t offset);
  bool def_cfa_expression(ByteView expression);
  bool at_cfa(std::uint64_t reg, std::int64_t offset) {
    return fits_row(offset) && set(reg, RegisterRule::at_cfa(static_cast<std::int32_t>(offset)));
  }
  bool cfa_value(std::uint64_t reg, std::int64_t offset) {
    return fits_row(offset) && set(reg, RegisterRule::cfa_value(static_cast<std::int32_t>(offset)));
  }
  bool in_register(std::uint64_t reg, std::uint64_t source);
  bool at_expression(std::uint64_t reg, ByteView expression);
  bool expression_value(std::uint64_t reg, ByteView expression);
  bool same_value(std::uint64_t reg);
  bool undefined(std::uint64_t reg) { return set(reg, RegisterRule::undefined()); }
  bool restore(std::uint64_t reg, const FullState& initial);
  void toggle_return_signed() { row_.return_signed = !row_.return_signed; }

  // Is there a whole row: does it say where the CFA is, and is the return address in a register that a row can name?
  [[nodiscard]] bool complete() const { return has_cfa_ && return_column_ <= kMaxRowRegister; }
  // Its begin and end are not set.
  [[nodiscard]] const FrameRow& row() const { return row_; }

 private:
  bool set(std::uint64_t reg, const RegisterRule& rule);

  FrameRow row_;
  // `def_cfa_register` after an expression takes the last offset there was, as libgcc does: hand-written .cfi relies
  // on it, DWARF 5 section 6.4.2.2 calls it invalid. So both forms are kept.
  std::int32_t cfa_offset_ = 0;
  RegisterNumber return_column_ = 0;  // kMaxRowRegister + 1: one that no rule can name
  bool has_cfa_ = false;
  Architecture architecture_ = Architecture::kX86_64;
};

// Evaluates full rows of one section. Holds caches: keep one for many FDEs. Allocates only when constructed.
class RowEvaluator {
 public:
  explicit RowEvaluator(const CfiSection& section) : section_(section), interpreter_(section, section) {}

  // Calls back for each row, ascending, without holes. The row object is reused, so copy the fields that you keep.
  // Expressions are views into the section. An error ends the FDE. By then the rows before the bad instruction's
  // location have been given. kLimit: more than a row can hold (48 registers, numbers up to 255, offsets below 2 GiB).
  [[nodiscard]] Expected<void> for_each_row(const Fde& fde, FunctionRef<void(const FrameRow&)> callback);

  // The row in force at `pc`. kNotFound outside the FDE. Linear in the FDE's instructions up to `pc`.
  [[nodiscard]] Expected<void> row_at(const Fde& fde, std::uint64_t pc, FrameRow& to);

 private:
  CfiSection section_;
  CfaInterpreter<FullState> interpreter_;
  FrameRow row_;
};

// The same for one FDE, without a RowEvaluator: what walkers step by. Allocates nothing; thread-safe, signal-safe;
// under 4 KiB of stack. Errors: as RowEvaluator, and kLimit for states nested deeper than InlineStorage has room.
[[nodiscard]] Expected<void> row_at(const CfiSection& section, const Fde& fde, std::uint64_t pc, FrameRow& to);

// The rows of one FDE, for a caller that has only one; see RowEvaluator.
[[nodiscard]] Expected<void> for_each_row(const CfiSection& section, const Fde& fde,
                                          FunctionRef<void(const FrameRow&)> callback);

}  // namespace windlass::dwarf
