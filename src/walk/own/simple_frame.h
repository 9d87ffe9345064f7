// One step by a simple rule (rules.h), for walks that find pcs only.
#pragma once

#include <cstdint>

#include "base/pointer_authentication.h"
#include "base/reads_stacks.h"
#include "walk/own/record.h"
#include "walk/own/rules.h"

namespace windlass::walk {

// What a step depends on, and gives.
struct FastWalkState {
  std::uint64_t key = 0;  // pc, with kInstructionBit; 0: there is no caller
  std::uint64_t sp = 0;
  std::uint64_t fp = 0;
  bool operator==(const FastWalkState&) const = default;
};

// Damaged stacks are misaligned, too.
using AnyWord [[gnu::aligned(1), gnu::may_alias]] = std::uint64_t;

inline const std::uint64_t* slot_at(std::uint64_t address) { return reinterpret_cast<const std::uint64_t*>(address); }
WINDLASS_READS_STACKS inline std::uint64_t load_word(const std::uint64_t* slot) {
  return *reinterpret_cast<const volatile AnyWord*>(slot);
}

// Where a simple rule has the caller's stack pointer, the return address, and the caller's frame pointer (at the return
// address where it stays).
struct SimpleFrame {
  SimpleFrame(PackedStep rule, const FastWalkState& frame)
      : return_at((rule.from_fp() ? frame.fp : frame.sp) + rule.return_offset()),
        cfa(return_at + rule.return_below_cfa()),
        fp_at(return_at - rule.fp_below_return()) {}
  // Above sp. Those that count from sp are, see PackedStep::pack().
  [[nodiscard]] bool leads_out(PackedStep rule, const FastWalkState& frame) const {
    return !rule.from_fp() || (cfa > frame.sp && fp_at >= frame.sp);
  }
  // Can it be one? The architecture aligns stacks.
  [[nodiscard]] bool aligned() const { return kOwnArchitecture == Architecture::kX86_64 || (cfa & 7) == 0; }
  // The frame is readable. The pc is 0 if there is no caller, and has its highest bit set if something is odd.
  [[gnu::always_inline]] FastWalkState caller(PackedStep rule, const FastWalkState& frame) const {
    const std::uint64_t pc = without_authentication(load_word(slot_at(return_at)));
    // No branch: whether a function saves the frame pointer is as random as the stack.
    const std::uint64_t saved_fp = load_word(slot_at(fp_at));
    return {pc, cfa, rule.fp_saved() ? saved_fp : frame.fp};
  }
  std::uint64_t return_at, cfa, fp_at;
};

}  // namespace windlass::walk
