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
  // SVE vectors of the frame, and the bytes from them up to the CFA, without other vectors.
  struct Vectors {
    std::uint64_t depth;
    std::uint32_t count;
    bool operator==(const Vectors&) const = default;
  };
  // The frame pointer, if one is set, and the bytes from its value up to the CFA, without `vectors`.
  struct Pointer {
    RegisterNumber reg;
    std::uint64_t depth;
    std::vector<Vectors> vectors;
  };
  [[nodiscard]] const std::optional<Pointer>& pointer() const { return pointer_; }
  struct Saved {
    RegisterNumber reg;
    std::uint64_t depth;  // [CFA - depth], without `vectors`.
    std::size_t vectors;  // Below so many Vectors.
  };
  [[nodiscard]] const std::vector<Saved>& saved() const { return saved_; }
  [[nodiscard]] bool return_signed() const { return signed_; }
  [[nodiscard]] const std::optional<prologue::MachineFrame>& machine_frame() const { return machine_frame_; }
  // True if everything is taken back. A machine frame is left by iretq.
  [[nodiscard]] bool is_entry() const;
  [[nodiscard]] bool same_frame(const FrameState& other) const {
    return depth_ == other.depth_ && saved_.size() == other.saved_.size() && signed_ == other.signed_ &&
           vectors_ == other.vectors_ && saved_vectors_.size() == other.saved_vectors_.size();
  }
  // The row of this frame; begin and end are not set. kLimit: a frame of 2 GiB or more. kUnsupported: SVE vectors.
  [[nodiscard]] Expected<FrameRow> row() const;

 private:
  Expected<void> save(const prologue::Save& save, std::uint32_t where);
  Expected<void> restore(const prologue::Save& save, std::uint32_t where);
  Expected<void> add_vectors(const prologue::AllocateVectors& vectors, std::uint32_t where);
  Expected<void> free_vectors(const prologue::AllocateVectors& vectors, std::uint32_t where);
  Expected<void> save(const prologue::SaveVector& save, std::uint32_t where);
  Expected<void> restore(const prologue::SaveVector& save, std::uint32_t where);
  // Bytes from sp up to the next vectors, or to the CFA.
  [[nodiscard]] std::uint64_t reach() const { return vectors_.empty() ? depth_ : depth_ - vectors_.back().depth; }
  // Bytes on the stack before the function's first instruction.
  [[nodiscard]] std::uint64_t entry_depth() const;

  Architecture architecture_;
  std::uint64_t depth_;
  std::optional<Pointer> pointer_;
  std::vector<Saved> saved_;
  std::vector<Vectors> vectors_;  // The CFA's first.
  struct SavedVector {
    RegisterNumber reg;
    std::uint64_t below;  // Eighths of a vector, from the begin of its Vectors down.
    std::size_t vectors;  // Its Vectors are the last of so many.
  };
  std::vector<SavedVector> saved_vectors_;
  bool signed_ = false;
  std::optional<prologue::MachineFrame> machine_frame_;
};

}  // namespace windlass
