// The frame at one point of a function that a Prologue describes: the sum of the actions so far.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "windlass/prologue.h"

namespace windlass {

// Places count back from the CFA: sp before the call on x86-64, sp on entry on AArch64.
class FrameState {
 public:
  explicit FrameState(Architecture architecture);

  // Applies an action. kMalformed or kOutOfRange, at the op's end.
  Expected<void> apply(const prologue::Op& op);
  // Takes an action back. It must have been applied, and sp must be where it was then.
  Expected<void> undo(const prologue::Op& op);

  // Bytes from sp up to the CFA.
  [[nodiscard]] std::uint64_t depth() const { return depth_; }
  // The frame pointer, if one is set, and the bytes from its value up to the CFA.
  struct Pointer {
    RegisterNumber reg;
    std::uint64_t depth;
  };
  [[nodiscard]] const std::optional<Pointer>& pointer() const { return pointer_; }
  struct Saved {
    RegisterNumber reg;
    std::uint64_t depth;  // [CFA - depth].
  };
  [[nodiscard]] const std::vector<Saved>& saved() const { return saved_; }
  [[nodiscard]] bool return_signed() const { return signed_; }
  [[nodiscard]] const std::optional<prologue::MachineFrame>& machine_frame() const { return machine_frame_; }
  // True if everything is taken back. A machine frame is left by iretq.
  [[nodiscard]] bool is_entry() const;
  [[nodiscard]] bool same_frame(const FrameState& other) const {
    return depth_ == other.depth_ && saved_.size() == other.saved_.size() && signed_ == other.signed_;
  }
  // The row of this frame; begin and end are not set. kLimit: a frame of 2 GiB or more.
  [[nodiscard]] Expected<FrameRow> row() const;

 private:
  Expected<void> save(const prologue::Save& save, std::uint32_t where);
  Expected<void> restore(const prologue::Save& save, std::uint32_t where);
  // Bytes on the stack before the function's first instruction.
  [[nodiscard]] std::uint64_t entry_depth() const;

  Architecture architecture_;
  std::uint64_t depth_;
  std::optional<Pointer> pointer_;
  std::vector<Saved> saved_;
  bool signed_ = false;
  std::optional<prologue::MachineFrame> machine_frame_;
};

}  // namespace windlass
