// A walk of the own stack for interfaces that ask for registers one at a time. Nearly all ask for the pc alone, so it
// steps as backtrace() does, by pc, stack and frame pointer, and finds the others when somebody wants them.
#pragma once

#include <cstdint>
#include <optional>

#include "walk/own/fast_walk.h"
#include "windlass/backtrace.h"

namespace windlass::dropin {

class OwnWalk {
 public:
  explicit OwnWalk(const Registers& start);

  // To the caller. False at the end.
  bool step();
  [[nodiscard]] WalkEnd end_reason() const { return end_; }

  [[nodiscard]] CodeAddress pc() const;
  [[nodiscard]] std::uint64_t sp() const { return walks_all_ ? walker_->frame().sp() : trace_.state().sp; }
  // Of the current frame; 0 where it is not known.
  [[nodiscard]] std::uint64_t get(std::uint64_t reg);

 private:
  // Brings the walker of all registers to the current frame. False where it goes another way.
  bool catch_up();

  const Registers& start_;
  walk::FastWalk trace_;
  std::optional<StackWalker> walker_;  // made when it is needed; behind by `lag_` frames
  std::size_t lag_ = 0;
  bool walks_all_ = false;
  WalkEnd end_ = WalkEnd::kRunning;
};

}  // namespace windlass::dropin
