#include "aarch64/shadow_stack.h"

namespace windlass::aarch64_judge {
namespace {

// Encodings: Arm Architecture Reference Manual, C4.1.66 "Branches, Exception generating and System instructions".
bool is_bl(std::uint32_t word) { return word >> 26 == 0b100101; }
bool is_register_branch(std::uint32_t word) { return (word & 0xfe1f'f000) == 0xd61f'0000; }  // br, blr, ret and the
unsigned branch_opcode(std::uint32_t word) { return word >> 21 & 7; }                        // authenticating forms
bool is_blr(std::uint32_t word) { return is_register_branch(word) && branch_opcode(word) == 1; }
bool is_ret(std::uint32_t word) { return is_register_branch(word) && branch_opcode(word) == 2; }
bool is_br(std::uint32_t word) { return is_register_branch(word) && branch_opcode(word) == 0; }
unsigned branch_register(std::uint32_t word) { return word >> 5 & 31; }

}  // namespace

std::uint64_t saved_register(const CpuState& state, unsigned index) {
  return index < 11 ? state.x[19 + index] : state.d[index - 11];
}
unsigned saved_register_dwarf(unsigned index) { return index < 11 ? 19 + index : 72 + index - 11; }

unsigned ShadowStack::region_of(std::uint64_t sp) const {
  for (std::size_t i = regions_.size(); i-- > 0;)
    if (sp > regions_[i].begin && sp <= regions_[i].end) return static_cast<unsigned>(i) + 1;
  return 0;
}

void ShadowStack::push(ShadowFrame::Kind kind, const CpuState& caller) {
  ShadowFrame frame;
  frame.kind = kind;
  frame.caller = caller;
  frame.region = region_of(caller.sp);
  frames_.push_back(std::move(frame));
}

void ShadowStack::pop(const CpuState* returned, bool transfer) {
  ShadowFrame& frame = frames_.back();
  std::uint32_t lost = 0;
  if (returned != nullptr)
    for (unsigned i = 0; i < kSavedRegisters; ++i)
      if (saved_register(*returned, i) != saved_register(frame.caller, i)) lost |= 1u << i;
  sink_.left(frame, lost, transfer ? frame.judgements.size() - frame.since_return : 0);
  frames_.pop_back();
  frames_.back().since_return = frames_.back().judgements.size();
}

// A ret: to the caller of the innermost frame, or of one further out whose callees ended by a jump.
void ShadowStack::returned(const CpuState& to) {
  for (std::size_t i = frames_.size(); i-- > 1;) {
    const ShadowFrame& frame = frames_[i];
    if (frame.kind == ShadowFrame::kSignal) break;
    if (frame.caller.pc != to.pc || frame.caller.sp != to.sp) continue;
    while (frames_.size() > i) pop(frames_.size() == i + 1 ? &to : nullptr, false);
    return;
  }
  transferred(to, true);
}

// Control went elsewhere than back: longjmp, the installation of a landing pad. Frames whose caller's sp has been
// passed are gone. `also_equal`: those as well whose caller has this sp, since this was no tail call.
void ShadowStack::transferred(const CpuState& to, bool also_equal) {
  const unsigned region = region_of(to.sp);
  bool first = true;
  while (frames_.size() > 1) {
    const ShadowFrame& frame = frames_.back();
    const bool elsewhere = frame.region != region;
    const bool passed = frame.caller.sp < to.sp || (also_equal && frame.caller.sp == to.sp);
    if (!elsewhere && !passed) break;
    pop(nullptr, first);
    first = false;
  }
  if (first && also_equal) ++strange_;
}

void ShadowStack::executed(const CpuState& from, std::uint32_t word, const CpuState& to) {
  if (is_bl(word) || is_blr(word)) {
    CpuState caller = to;
    caller.pc = from.pc + 4;
    push(ShadowFrame::kCall, caller);
  } else if (is_ret(word)) {
    returned(to);
  } else if (is_br(word)) {
    // A tail call leaves the return address where it is.
    transferred(to, branch_register(word) == 30);
  }
}

void ShadowStack::signalled(const CpuState& interrupted, const CpuState& at) {
  push(ShadowFrame::kSignal, interrupted);
  CpuState caller = at;
  caller.pc = at.x[30];
  push(ShadowFrame::kCall, caller);
}

void ShadowStack::sigreturn() {
  while (frames_.size() > 1) {
    const bool done = frames_.back().kind == ShadowFrame::kSignal;
    pop(nullptr, false);
    if (done) return;
  }
}

void ShadowStack::finish() {
  while (frames_.size() > 1) pop(nullptr, false);
  sink_.left(frames_.back(), 0, 0);
}

}  // namespace windlass::aarch64_judge
