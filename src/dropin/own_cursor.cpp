#include "dropin/own_cursor.h"

namespace windlass::dropin {
namespace {

walk::FastWalkState state_of(const Registers& registers) {
  const CodeAddress pc = registers.pc();
  return {pc.value() | (pc.is_return_address() ? 0 : walk::kInstructionBit), registers.sp(),
          registers.get(Registers::fp_number(kOwnArchitecture))};
}

// Each step with all registers is a walk of its own, which knows only the locations since its start. A register that
// the walk takes for unsaved has the location that it had in the last frame.
void keep_locations(const Frame& last, Frame& next) {
  next.registers.for_each([&](RegisterNumber reg, std::uint64_t) {
    if (next.saved.at(next.registers, reg) == 0 && reg != Registers::sp_number(kOwnArchitecture))
      next.saved.set(next.registers, reg, last.saved.at(last.registers, reg));
  });
}

}  // namespace

OwnCursor::OwnCursor(const Registers& start) : trace_(state_of(start)) {}

CodeAddress OwnCursor::pc() const {
  if (has_all_) return frame_.pc();
  const std::uint64_t value = trace_.key & ~walk::kInstructionBit;
  return value != trace_.key ? CodeAddress::instruction(value) : CodeAddress::return_address(value);
}

Frame* OwnCursor::all_registers(Start start, Found found) {
  if (has_all_) return &frame_;
  StackWalker walker(own_process(), start());
  for (std::size_t i = 0; i < index_; ++i)
    if (!walker.step()) return nullptr;
  if (walker.frame().pc() != pc() || walker.frame().sp() != sp()) return nullptr;
  frame_ = walker.frame();
  has_all_ = true;
  found(frame_);
  return &frame_;
}

bool OwnCursor::step_all_registers() {
  StackWalker walker(own_process(), frame_.registers);
  if (!walker.step()) return ended(walker.end_reason());
  Frame next = walker.frame();
  if (!progress_.allows(sp(), next.sp(), next.pc() == pc())) return ended(WalkEnd::kNoProgress);
  keep_locations(frame_, next);
  frame_ = next;
  ++index_;
  return true;
}

bool OwnCursor::step(walk::FastWalk& fast, Start start, Found found) {
  if (!has_all_) {
    if (fast.step()) {
      if (!progress_.allows(trace_.sp, fast.state().sp, fast.state().key == trace_.key))
        return ended(WalkEnd::kNoProgress);
      trace_ = fast.state();
      ++index_;
      return true;
    }
    if (fast.outcome() == walk::FastWalk::Outcome::kComplete) return ended(WalkEnd::kComplete);
    if (fast.outcome() == walk::FastWalk::Outcome::kGuessed) return ended(WalkEnd::kGuessed);
    if (all_registers(start, found) == nullptr) return ended(WalkEnd::kNoRow);
  }
  return step_all_registers();
}

}  // namespace windlass::dropin
