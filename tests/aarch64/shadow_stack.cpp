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

constexpr unsigned kLink = 30;
constexpr std::uint64_t kAddress = (std::uint64_t{1} << 48) - 1;  // without an authentication code

// ldr x30 and ldp with x30.
bool loads_link(std::uint32_t word) {
  const bool pair = (word & 0xfe40'0000) == 0xa840'0000 && ((word & 31) == 30 || (word >> 10 & 31) == 30);
  const bool single = (word & 0xffc0'001f) == (0xf940'0000 | 30) || (word & 0xffe0'041f) == (0xf840'0400 | 30);
  return pair || single;
}

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

void ShadowStack::pop(const CpuState* returned, const CpuState* to, bool transfer) {
  ShadowFrame& frame = frames_.back();
  std::uint32_t lost = 0;
  if (returned != nullptr)
    for (unsigned i = 0; i < kSavedRegisters; ++i)
      if (saved_register(*returned, i) != saved_register(frame.caller, i)) lost |= 1u << i;
  sink_.left(frame, lost, transfer ? frame.judgements.size() - frame.since_return : 0, to);
  frames_.pop_back();
  frames_.back().since_return = frames_.back().judgements.size();
}

// A ret: to the caller of the innermost frame, or of one further out whose callees ended by a jump.
void ShadowStack::returned(const CpuState& to) {
  for (std::size_t i = frames_.size(); i-- > 1;) {
    const ShadowFrame& frame = frames_[i];
    if (frame.kind == ShadowFrame::kSignal) break;
    if (frame.caller.pc != to.pc || frame.caller.sp != to.sp) continue;
    while (frames_.size() > i) pop(frames_.size() == i + 1 ? &to : nullptr, &to, false);
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
    pop(nullptr, &to, first);
    first = false;
  }
  if (!also_equal) return;
  if (first) ++strange_;
  const auto caller = frameless_callers_.find({to.pc, to.sp});
  if (caller != frameless_callers_.end()) push(ShadowFrame::kCall, caller->second);
}

// str x30 and stp with x30, in the forms compilers save it by (C4.1.66, "Loads and Stores").
void ShadowStack::note_link_store(const CpuState& from, std::uint32_t word) {
  ShadowFrame& frame = frames_.back();
  if (frame.kind != ShadowFrame::kCall || frame.link_slot != 0 || (from.x[kLink] & kAddress) != frame.caller.pc) return;
  const unsigned base_register = word >> 5 & 31;
  const std::uint64_t base = base_register == 31 ? from.sp : from.x[base_register];
  const auto signed_bits = [word](unsigned low, unsigned count) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(std::uint64_t{word} << (64 - low - count)) >>
                                      (64 - count));
  };
  std::uint64_t address = 0;
  if ((word & 0xfe40'0000) == 0xa800'0000) {  // stp of 64-bit registers
    const bool first = (word & 31) == kLink;
    const bool second = (word >> 10 & 31) == kLink;
    if (!first && !second) return;
    const bool post_index = (word >> 23 & 3) == 1;
    address = base + (post_index ? 0 : signed_bits(15, 7) * 8) + (first ? 0 : 8);
  } else if ((word & 0xffc0'001f) == (0xf900'0000 | kLink)) {  // str, unsigned offset
    address = base + (word >> 10 & 0xfff) * 8;
  } else if ((word & 0xffe0'0c1f) == (0xf800'0c00 | kLink)) {  // str, pre-index
    address = base + signed_bits(12, 9);
  } else {
    return;
  }
  frame.link_slot = address;
  frame.link_value = from.x[kLink];
  if (from.x[kLink] != frame.caller.pc) ++signed_links_;
}

void ShadowStack::executed(const CpuState& from, std::uint32_t word, const CpuState& to) {
  if (is_bl(word) || is_blr(word)) {
    CpuState caller = to;
    caller.pc = from.pc + 4;
    const ShadowFrame& current = frames_.back();
    if (current.kind == ShadowFrame::kCall && current.caller.sp == caller.sp)
      frameless_callers_[{caller.pc, caller.sp}] = current.caller;
    push(ShadowFrame::kCall, caller);
  } else if (is_ret(word)) {
    returned(to);
  } else if (is_br(word)) {
    // A tail call leaves the return address where it is.
    transferred(to, branch_register(word) == 30);
  } else if (loads_link(word)) {
    // Back in its register, its slot may be used for anything.
    if ((to.x[kLink] & kAddress) == frames_.back().caller.pc) frames_.back().link_slot = 0;
  } else {
    note_link_store(from, word);
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
    pop(nullptr, nullptr, false);
    if (done) return;
  }
}

CpuState ShadowStack::interrupted() const {
  for (std::size_t i = frames_.size(); i-- > 0;)
    if (frames_[i].kind == ShadowFrame::kSignal) return frames_[i].caller;
  return {};
}

void ShadowStack::finish() {
  while (frames_.size() > 1) pop(nullptr, nullptr, false);
  sink_.left(frames_.back(), 0, 0, nullptr);
}

}  // namespace windlass::aarch64_judge
