#include "alloc/kept_stack.h"

#include "walk/own/fast_walk.h"
#include "walk/own/memory.h"
#include "walk/own/modules.h"
#include "windlass_event_layout.h"

namespace windlass::alloc {

using walk::FastWalk;
using walk::FastWalkState;
using walk::kInstructionBit;
using walk::OwnModule;
using walk::PackedStep;

// By whatever rule.
[[gnu::noinline]] KeptStack::Answer KeptStack::step_slowly(Frame& frame, FastWalkState& caller) {
  frame.return_slot = frame.fp_slot = &walk::kBarrier;
  FastWalk walk(frame.state, false);
  const bool stepped = walk.step();
  frame.is_own_guess = walk.guessed() || walk.outcome() == FastWalk::Outcome::kGuessed;
  if (!stepped) return walk.outcome() == FastWalk::Outcome::kNeedsAllRegisters ? Answer::kCannot : Answer::kEnd;
  caller = walk.state();
  return Answer::kStepped;
}

// [.., high) of the stack is readable.
[[gnu::always_inline]] inline KeptStack::Answer KeptStack::step(Frame& frame, std::uint64_t high,
                                                                FastWalkState& caller) {
  frame.is_own_guess = false;
  PackedStep rule;
  if (!walk::RuleCache::View().find(frame.state.key, rule)) return step_slowly(frame, caller);
  if (rule.is(PackedStep::kFromSp, OwnModule::kNeverUnloaded) ||
      rule.is(PackedStep::kFromFp, OwnModule::kNeverUnloaded)) [[likely]] {
    const walk::SimpleFrame at(rule, frame.state);
    if (at.cfa > high || !at.leads_out(rule, frame.state) || !at.aligned()) return step_slowly(frame, caller);
    caller = at.caller(rule, frame.state);
    if (static_cast<std::int64_t>(caller.key) <= 0) return step_slowly(frame, caller);
    frame.return_slot = walk::slot_at(at.return_at);
    frame.fp_slot = rule.fp_saved() ? walk::slot_at(at.fp_at) : nullptr;
    return Answer::kStepped;
  }
  if (rule.is(PackedStep::kPalette, OwnModule::kNeverUnloaded) && rule.index() == PackedStep::kOutermost) {
    frame.return_slot = frame.fp_slot = &walk::kZero;
    return Answer::kEnd;
  }
  return step_slowly(frame, caller);
}

// Its rule may be known by now, so that the next time will be quicker.
[[gnu::noinline]] bool KeptStack::still_leads_to(const FastWalkState& next, Frame& frame, std::uint64_t high) {
  FastWalkState caller;
  const bool guess = frame.is_own_guess;
  if (step(frame, high, caller) != Answer::kStepped || !(caller == next) || frame.is_own_guess != guess) return false;
  if (frame.fp_slot == nullptr) frame.fp_slot = &frame.state.fp;
  return true;
}
[[gnu::noinline]] bool KeptStack::still_ends(Frame& frame, std::uint64_t high) {
  FastWalkState caller;
  const bool guess = frame.is_own_guess;
  return step(frame, high, caller) == Answer::kEnd && frame.is_own_guess == guess;
}

// The index of the first frame from [at] on whose step no longer leads to the next; kMaxFrames if all do. Loads that do
// not wait for each other.
WINDLASS_READS_STACKS inline std::size_t KeptStack::changed_from(std::size_t at, std::uint64_t high) {
  for (; at != 0; --at) {
    Frame& frame = frames_[at];
    const FastWalkState& next = frames_[at - 1].state;
    if (((without_authentication(walk::load_word(frame.return_slot)) ^ next.key) |
         (walk::load_word(frame.fp_slot) ^ next.fp)) == 0) [[likely]]
      continue;
    if (frame.return_slot != &walk::kBarrier || !still_leads_to(next, frame, high)) return at;
  }
  return frames_[0].return_slot == &walk::kZero || still_ends(frames_[0], high) ? kMaxFrames : 0;
}

// The new stack: [0, kept) of the last one, and the fresh frames.
inline void KeptStack::put(std::size_t kept, std::size_t fresh) {
  count_ = kept + fresh;
  std::uint64_t hash = kept != 0 ? frames_[kept - 1].hash : kHashOfNoFrames;
  bool guessed = kept != 0 && frames_[kept - 1].guessed;
  for (std::size_t at = kept; fresh != 0; ++at) {
    Frame& frame = frames_[at] = fresh_[--fresh];
    if (frame.fp_slot == nullptr) frame.fp_slot = &frame.state.fp;  // it stays
    if (!frame.left_out) hash = mixed(hash, frame.state.key);
    frame.hash = hash;
    frame.guessed = guessed |= frame.is_own_guess;
  }
}

bool KeptStack::walk(const FastWalkState& from, std::uint64_t begin, std::uint64_t end) {
  walk::RuleCache::before_walk();
  std::uint64_t high = walk::known_stack(from.sp, true).high;
  std::size_t may_meet = count_;  // [0, may_meet) of the last stack
  FastWalkState state = from;
  for (std::size_t fresh = 0; fresh != kMaxFrames;) {
    while (may_meet != 0 && frames_[may_meet - 1].state.sp < state.sp) --may_meet;
    if (may_meet != 0 && frames_[may_meet - 1].state == state && frames_[0].state.sp <= high &&
        may_meet + fresh <= kMaxFrames) {
      const std::size_t changed = changed_from(may_meet - 1, high);
      if (changed == kMaxFrames) {
        put(may_meet, fresh);
        return true;
      }
      may_meet = changed;
    }
    Frame& frame = fresh_[fresh++];
    frame.state = state;
    frame.left_out = (state.key & ~kInstructionBit) - begin < end - begin;
    FastWalkState caller;
    const Answer answer = step(frame, high, caller);
    if (answer == Answer::kEnd) {
      put(0, fresh);
      return true;
    }
    if (answer == Answer::kCannot || caller.sp <= state.sp) break;
    if (caller.sp > high) high = walk::known_stack(caller.sp, false).high;
    state = caller;
  }
  count_ = 0;
  return false;
}

std::size_t KeptStack::frames(std::uint64_t* to) const {
  static_assert(kInstructionBit == WL_FRAME_EXACT);
  std::size_t depth = 0;
  for (std::size_t at = count_; at-- != 0;)
    if (!frames_[at].left_out) to[depth++] = frames_[at].state.key;
  return depth;
}

}  // namespace windlass::alloc
