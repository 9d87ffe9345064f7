// Where a followed path left the function, and the row that says so in terms of the registers where it began.
#pragma once

#include <cstdint>

#include "base/registers.h"
#include "flow/symbolic.h"
#include "windlass/frame_row.h"

namespace windlass::flow {

// The registers as a function leaves them, by Registers::slot_of.
struct ExitView {
  const Value* registers;
  unsigned count;
  Value return_address;  // what the pc becomes
  unsigned calls = 0;    // passed on the way
  bool signal_frame = false;
  bool return_signed = false;
  bool all_registers = false;  // the row is to tell of those that calls need not preserve, too
};

// The DWARF number of a slot (Registers::slot_of's inverse).
[[nodiscard]] constexpr RegisterNumber register_of_slot(unsigned slot) {
  return static_cast<RegisterNumber>(slot < 36 ? slot : slot + 36);
}

// The row at `pc` of a frame where every register is still itself.
inline void lay_out(FrameRow& row, std::uint64_t pc, const CfaRule& cfa, const RegisterRule& return_address) {
  row.begin = pc;
  row.end = pc + 1;
  row.cfa = cfa;
  row.return_address = return_address;
  row.signal_frame = row.return_signed = false;
  row.registers.clear();
}

// FrameRow::expressions of all rows made here: a pool that lives as long as the process, so rows may be kept.
[[nodiscard]] ByteView shared_expressions();

// Saved at `address`, where the caller's sp is `cfa`: undefined if no rule can say it. What takes two loads is an
// expression in the pool, of at most eight bytes. Thread-safe and signal-safe (one compare-and-swap).
[[nodiscard]] RegisterRule rule_at(const Value& address, const Value& cfa);

// The row at `pc` for an execution that leaves the function so. False where sp or the return address cannot be
// expressed. A preserved register whose value cannot be becomes Undefined.
[[nodiscard]] bool make_row(Architecture architecture, const ExitView& exit, std::uint64_t pc, FrameRow& row);

// May a function that keeps the calling convention leave so: every preserved register is the caller's or was saved
// within the frame, and sp ends above where the path began?
[[nodiscard]] bool keeps_convention(Architecture architecture, const ExitView& exit);

// Do both rows say the same about the CFA and the return address?
[[nodiscard]] bool same_frame(const FrameRow& a, const FrameRow& b);
// And about the preserved registers?
[[nodiscard]] bool same_row(Architecture architecture, const FrameRow& a, const FrameRow& b);

// AArch64: do both lead to the same caller as far as is known? A register that has been loaded back is also still
// where it was saved, as long as sp is not above it; CFA = x29 + a and CFA = sp + b may be the same.
[[nodiscard]] bool same_caller_aarch64(const FrameRow& cfi, const FrameRow& code);

}  // namespace windlass::flow
