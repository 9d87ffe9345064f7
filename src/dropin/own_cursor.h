// A position in a walk of the own stack, for interfaces that ask for registers one at a time.
//
// Nearly all callers ask for the pc alone. So the cursor steps as backtrace() does: by pc, stack and frame pointer.
// When a caller asks for another register, a frame with all registers is found, and from then on at every step. Plain
// memory, since callers of libunwind copy cursors and never say when they are done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "walk/own/fast_walk.h"
#include "windlass/backtrace.h"
#include "windlass/function_ref.h"

namespace windlass::dropin {

class OwnCursor {
 public:
  // The registers that the walk starts with.
  using Start = FunctionRef<Registers()>;
  // Called once, with the first frame that has all registers.
  using Found = FunctionRef<void(Frame&)>;

  OwnCursor() = default;
  explicit OwnCursor(const Registers& start);
  explicit OwnCursor(const walk::FastWalkState& start) : trace_(start) {}

  // To the caller. `fast` stands at trace(). False at the end.
  bool step(walk::FastWalk& fast, Start start, Found found);
  [[nodiscard]] WalkEnd end_reason() const { return end_; }

  [[nodiscard]] const walk::FastWalkState& trace() const { return trace_; }
  [[nodiscard]] CodeAddress pc() const;
  [[nodiscard]] std::uint64_t sp() const { return has_all_ ? frame_.sp() : trace_.sp; }
  [[nodiscard]] bool is_first() const { return index_ == 0; }
  [[nodiscard]] bool has_all_registers() const { return has_all_; }
  // The current frame with all that is known of it, or null: the walk of all registers goes another way.
  [[nodiscard]] Frame* all_registers(Start start, Found found);

 private:
  bool step_all_registers();
  bool ended(WalkEnd end) {
    end_ = end;
    return false;
  }

  walk::FastWalkState trace_;
  std::size_t index_ = 0;
  walk::Progress progress_;
  WalkEnd end_ = WalkEnd::kRunning;
  bool has_all_ = false;
  Frame frame_;  // with has_all_
};

}  // namespace windlass::dropin
