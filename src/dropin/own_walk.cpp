#include "dropin/own_walk.h"

namespace windlass::dropin {
namespace {

constexpr RegisterNumber kFp = Registers::fp_number(kOwnArchitecture);

walk::FastWalkState state_of(const Registers& registers) {
  const CodeAddress pc = registers.pc();
  return {pc.value() | (pc.is_return_address() ? 0 : walk::kInstructionBit), registers.sp(), registers.get(kFp)};
}

}  // namespace

OwnWalk::OwnWalk(const Registers& start) : start_(start), trace_(state_of(start), true) {}

CodeAddress OwnWalk::pc() const {
  if (walks_all_) return walker_->frame().pc();
  const std::uint64_t key = trace_.state().key;
  return (key & walk::kInstructionBit) != 0 ? CodeAddress::instruction(key & ~walk::kInstructionBit)
                                            : CodeAddress::return_address(key);
}

bool OwnWalk::catch_up() {
  if (!walker_) walker_.emplace(own_process(), start_);
  for (; lag_ != 0; --lag_)
    if (!walker_->step()) return false;
  const Frame& frame = walker_->frame();
  return walks_all_ || (frame.pc() == pc() && frame.sp() == sp());
}

bool OwnWalk::step() {
  if (!walks_all_) {
    if (trace_.step()) {
      ++lag_;
      return true;
    }
    if (trace_.outcome() == walk::FastWalk::Outcome::kComplete) {
      end_ = WalkEnd::kComplete;
      return false;
    }
    if (!catch_up()) {
      end_ = WalkEnd::kNoRow;
      return false;
    }
    walks_all_ = true;
  }
  if (walker_->step()) return true;
  end_ = walker_->end_reason();
  return false;
}

std::uint64_t OwnWalk::get(std::uint64_t reg) {
  if (reg == Registers::sp_number(kOwnArchitecture)) return sp();
  if (reg == Registers::pc_number(kOwnArchitecture)) return pc().value();
  if (reg == kFp && !walks_all_) return trace_.state().fp;
  return catch_up() ? walker_->frame().registers.get(reg) : 0;
}

}  // namespace windlass::dropin
