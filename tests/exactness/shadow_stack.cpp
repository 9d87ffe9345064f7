#include "exactness/shadow_stack.h"

#include <algorithm>
#include <cstring>

namespace windlass::exactness {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint8_t kAbandoned = 0x3f;  // as if no register had been preserved
constexpr std::uint64_t kSigreturn = 15;
constexpr std::uint64_t kUcontextRegisters = 40;  // uc_mcontext.gregs in struct ucontext (asm/ucontext.h)

std::array<std::uint64_t, 6> preserved_of(const MachineState& state) {
  std::array<std::uint64_t, 6> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = state.reg[kPreserved[i]];
  return values;
}

ShadowFrame first_frame(ShadowFrame::Kind kind, std::uint64_t pc) {
  ShadowFrame frame;
  frame.kind = kind;
  frame.slot = frame.caller_sp = kNever;
  frame.entry = pc;
  return frame;
}

}  // namespace

std::uint64_t ShadowStack::stack_end(Tracee& tracee, std::uint64_t sp) {
  const Mapping* mapping = tracee.mapping(sp);
  if (mapping == nullptr) {
    tracee.reload();  // the stack has grown
    mapping = tracee.mapping(sp);
  }
  return mapping != nullptr ? mapping->end : 0;
}

void ShadowStack::start(const Tracee& tracee, ShadowFrame::Kind bottom) {
  finish();
  const Mapping* mapping = tracee.mapping(tracee.state().sp());
  stacks_.push_back({mapping != nullptr ? mapping->end : 0, {}});
  stacks_[0].frames.push_back(first_frame(bottom, tracee.state().pc()));
  current_ = 0;
}

void ShadowStack::finish() {
  for (Stack& stack : stacks_)
    while (!stack.frames.empty()) pop(stack, 0);
  stacks_.clear();
}

void ShadowStack::pop(Stack& stack, std::uint8_t lost) {
  on_pop_(stack.frames.back(), lost);
  stack.frames.pop_back();
}

void ShadowStack::select(Tracee& tracee, const MachineState& before) {
  const std::uint64_t sp = tracee.state().sp();
  const bool far = sp + (std::uint64_t{8} << 20) < before.sp() || sp > before.sp() + (std::uint64_t{64} << 10);
  if (stacks_.size() == 1 && sp <= stacks_[0].end && !far) return;
  const std::uint64_t end = stack_end(tracee, sp);
  if (end == stacks_[current_].end) return;
  const auto known = std::find_if(stacks_.begin(), stacks_.end(), [&](const Stack& stack) { return stack.end == end; });
  current_ = static_cast<std::size_t>(known - stacks_.begin());
  if (known != stacks_.end()) return;
  stacks_.push_back({end, {}});
  stacks_.back().frames.push_back(first_frame(ShadowFrame::Kind::kUnknown, tracee.state().pc()));
}

void ShadowStack::stepped(Tracee& tracee, const Instruction& instruction, const MachineState& before) {
  using Kind = Instruction::Kind;
  select(tracee, before);
  const MachineState& after = tracee.state();
  if (tracee.delivered() && after.pc() != before.pc() && push_signal(tracee)) return;
  if (instruction.kind == Kind::kSystemCall && before.rax() == kSigreturn) return pop_restorer(before.sp());
  if (instruction.kind == Kind::kCall && after.pc() != before.pc() && after.sp() == before.sp() - 8)
    return push_call(instruction, before, after);
  const bool leaves = instruction.kind == Kind::kReturn || instruction.kind == Kind::kIndirectJump ||
                      (instruction.kind == Kind::kJump && top().slot < after.sp());
  if (!leaves) return;
  pop_returned(instruction, after);
  if (instruction.kind == Kind::kIndirectJump) resume(after);
}

// A longjmp to a function that had no return address on the stack when it called setjmp: its frame is back.
void ShadowStack::resume(const MachineState& after) {
  const auto record = without_address_.find(after.pc());
  if (record == without_address_.end() || record->second.caller_sp != after.sp()) return;
  stacks_[current_].frames.push_back(record->second);
}

bool ShadowStack::push_signal(const Tracee& tracee) {
  // mov $15, %rax; syscall: what every libc's restorer is, and what debuggers know it by
  static constexpr std::uint8_t kRestorer[9] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
  const MachineState& state = tracee.state();
  std::uint64_t restorer = 0;
  std::uint8_t code[sizeof kRestorer];
  if (!tracee.word(state.sp(), restorer) || !tracee.read(restorer, code, sizeof code) ||
      std::memcmp(code, kRestorer, sizeof code) != 0)
    return false;
  // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip
  std::uint64_t saved[17];
  if (!tracee.read(state.sp() + 8 + kUcontextRegisters, saved, sizeof saved)) return false;
  ++signals_;
  ShadowFrame interrupted;
  interrupted.kind = ShadowFrame::Kind::kSignal;
  interrupted.slot = state.sp() + 8;
  interrupted.caller_pc = saved[16];
  interrupted.caller_sp = saved[15];
  interrupted.caller_preserved = {saved[11], saved[10], saved[4], saved[5], saved[6], saved[7]};
  interrupted.entry = restorer;
  ShadowFrame handler;
  handler.slot = state.sp();
  handler.caller_pc = restorer;
  handler.caller_sp = state.sp() + 8;
  handler.caller_preserved = preserved_of(state);
  handler.entry = state.pc();
  std::vector<ShadowFrame>& frames = stacks_[current_].frames;
  frames.push_back(std::move(interrupted));
  frames.push_back(std::move(handler));
  return true;
}

void ShadowStack::pop_restorer(std::uint64_t sp) {
  constexpr std::uint64_t kFrameSize = 4096;
  for (Stack& stack : stacks_) {
    const ShadowFrame& frame = stack.frames.back();
    if (frame.kind != ShadowFrame::Kind::kSignal || frame.slot > sp + 8 || frame.slot + kFrameSize <= sp) continue;
    return pop(stack, 0);
  }
}

void ShadowStack::push_call(const Instruction& instruction, const MachineState& before, const MachineState& after) {
  Stack& stack = stacks_[current_];
  while (stack.frames.size() > 1 && stack.frames.back().slot < after.sp()) pop(stack, kAbandoned);
  ShadowFrame frame;
  frame.slot = after.sp();
  frame.caller_pc = before.pc() + instruction.length;
  frame.caller_sp = after.sp() + 8;
  frame.caller_preserved = preserved_of(after);
  frame.entry = after.pc();
  stack.frames.push_back(std::move(frame));
}

void ShadowStack::pop_returned(const Instruction& instruction, const MachineState& after) {
  Stack& stack = stacks_[current_];
  const auto now = preserved_of(after);
  while (stack.frames.size() > 1 && stack.frames.back().slot < after.sp()) {
    const ShadowFrame& frame = stack.frames.back();
    std::uint8_t lost = 0;
    if (instruction.kind == Instruction::Kind::kReturn && after.sp() == frame.caller_sp &&
        after.pc() == frame.caller_pc)
      for (std::size_t i = 0; i < now.size(); ++i)
        if (now[i] != frame.caller_preserved[i]) lost |= static_cast<std::uint8_t>(1u << i);
    const std::uint64_t slot = frame.slot;
    const bool returned = instruction.kind == Instruction::Kind::kReturn && after.pc() == frame.caller_pc;
    if (!returned) stack.frames.back().left_to = after.pc();
    pop(stack, lost);
    // musl's sigsetjmp takes its return address off the stack before it calls setjmp, and pushes it again after.
    if (returned && stack.frames.back().slot == slot) {
      without_address_[after.pc()] = stack.frames.back();
      without_address_[after.pc()].pending.clear();
      return;
    }
  }
}

ShadowStack::Judgeable ShadowStack::judgeable(const Tracee& tracee) {
  const ShadowFrame& frame = top();
  using Kind = ShadowFrame::Kind;
  const bool has_slot = frame.kind == Kind::kCall || frame.kind == Kind::kSignal;
  if (has_slot && tracee.state().sp() > frame.slot) return Judgeable::kLimbo;
  if (frame.kind == Kind::kUnknown) return Judgeable::kUnknown;
  std::uint64_t held = 0;
  if (frame.kind == Kind::kCall && (!tracee.word(frame.slot, held) || held != frame.caller_pc))
    return Judgeable::kRewritten;
  return Judgeable::kYes;
}

std::vector<ShadowFrame*> ShadowStack::callers(Tracee& tracee, bool& open) {
  std::vector<ShadowFrame*> chain;
  open = false;
  for (std::size_t at = current_;;) {
    std::size_t next = at;
    std::vector<ShadowFrame>& frames = stacks_[at].frames;
    for (auto frame = frames.rbegin(); frame != frames.rend() && next == at; ++frame) {
      if (frame->kind == ShadowFrame::Kind::kBottom) return chain;
      open = frame->kind == ShadowFrame::Kind::kUnknown;
      if (open) return chain;
      chain.push_back(&*frame);
      if (frame->kind != ShadowFrame::Kind::kSignal) continue;
      const std::uint64_t end = stack_end(tracee, frame->caller_sp);
      for (std::size_t other = 0; other < stacks_.size() && next == at; ++other)
        if (other != at && stacks_[other].end == end) next = other;
    }
    if (next == at || chain.size() > 1'000'000) return chain;
    at = next;
  }
}

}  // namespace windlass::exactness
