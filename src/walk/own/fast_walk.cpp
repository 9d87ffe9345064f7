#include "walk/own/fast_walk.h"

#include <algorithm>

#include "base/pointer_authentication.h"
#include "lookup/table/project.h"
#include "walk/own/modules.h"
#include "walk/own/prepared_rules.h"
#include "windlass_user_env.h"

#include "windlass_step.h"

namespace windlass::walk {
// For the length of a walk or a step, so that a walk may be left where it is.
struct FastWalk::CodeInUse {
  explicit CodeInUse(FastWalk& walk) : walk_(walk), view_(own_code_ranges()) {
    walk_.code_ = view_.empty() ? nullptr : &view_;
  }
  ~CodeInUse() { walk_.code_ = nullptr; }
  CodeInUse(const CodeInUse&) = delete;
  CodeInUse& operator=(const CodeInUse&) = delete;

 private:
  FastWalk& walk_;
  const CodeRanges::View view_;
};

[[gnu::hot]] FastWalk::FastWalk(const FastWalkState& start, bool live)
    : state_(start), stack_(known_stack(start.sp, live)) {
  RuleCache::before_walk();
  if ((start.key & kInstructionBit) != 0) note_interrupted();
}

inline void FastWalk::go_to(const FastWalkState& caller) {
  state_ = caller;
  if (caller.sp < stack_.low || caller.sp > stack_.high) [[unlikely]]
    stack_ = known_stack(caller.sp, false);
}

bool FastWalk::load(std::uint64_t address, std::uint64_t& value) {
  if (address < stack_.low || !extend(stack_, address, sizeof value)) return false;
  value = load_word(slot_at(address));
  return true;
}

// Is the module around the current pc, which can be unloaded, still the one that the rule with `tag` came from?
bool FastWalk::is_current(std::uint16_t tag) {
  for (const std::uint16_t current : current_tags_)
    if (tag == current) return true;
  if (!OwnModules::verify(tag, lookup_address(state_.key))) return false;
  current_tags_[next_tag_++ % std::size(current_tags_)] = tag;
  return true;
}

// The caller by a simple rule whose frame is readable. Anything odd is left to those who know better.
[[gnu::always_inline]] inline FastWalk::Answer FastWalk::load_caller(PackedStep rule, const SimpleFrame& at,
                                                                     const FastWalkState& frame, FastWalkState& caller,
                                                                     Slots& slots) {
  if (!at.aligned()) return Answer::kCannot;
  slots = {slot_at(at.return_at), slot_at(at.fp_at)};
  caller = at.caller(rule, frame);
  if (static_cast<std::int64_t>(caller.key) <= 0) [[unlikely]]
    return caller.key == 0 ? Answer::kEnd : Answer::kCannot;
  return Answer::kStepped;
}

[[gnu::hot]] FastWalk::Answer FastWalk::by_rule(PackedStep rule, FastWalkState& caller, Slots& slots) {
  const SimpleFrame at(rule, state_);
  if (!at.leads_out(rule, state_) || at.return_at - written_ < written_size_) return Answer::kCannot;
  if (at.cfa > stack_.high && !extend(stack_, at.cfa - 8, 8)) return Answer::kCannot;
  return load_caller(rule, at, state_, caller, slots);
}

// By a rule that says that there is none: replayed as a return address of 0 that is always there.
[[gnu::hot]] FastWalk::Answer FastWalk::by_no_caller(FastWalkState& caller, Slots& slots) {
  caller.fp = state_.fp;
  slots = {&kZero, &kZero};
  return Answer::kEnd;
}

// The rules that are none of those, applied by the kernel side's code to the registers that this walk knows.
FastWalk::Answer FastWalk::by_full_rule(const table::TraceRule& rule, FastWalkState& caller) {
  wl_unwind unwind;
  unwind.env = {.arena = nullptr,
                .modules = nullptr,
                .module_count = 0,
                .read = read_for_rule,
                .context = this,
                .learned = nullptr,
                .address_mask = user_code_mask()};
  unwind.next_stack = 0;
  unwind.cursor = {};
  __u64* const regs = unwind.cursor.regs;
  regs[WL_PC] = state_.key & ~kInstructionBit;
  regs[WL_SP] = state_.sp;
  regs[WL_FP] = state_.fp;
  unwind.cursor.valid = WL_VALID_BASE | 1u << WL_FP;
  unwind.cursor.exact = (state_.key & kInstructionBit) != 0;
  const int result = wl_apply(&unwind, &rule, WL_NO_XREG, lookup_address(state_.key));
  if (result == WL_END_COMPLETE) return Answer::kEnd;
  if (result != WL_CONTINUE || !WL_VALID(&unwind.cursor, WL_FP)) return Answer::kCannot;
  if (static_cast<std::int64_t>(regs[WL_PC]) < 0) return Answer::kCannot;
  const bool signal = (rule.flags & WL_RULE_SIGNAL) != 0;
  if (regs[WL_SP] <= state_.sp && (!signal || !progress_.allows(state_.sp, regs[WL_SP], false))) return Answer::kCannot;
  caller = {unwind.cursor.exact != 0 ? regs[WL_PC] | kInstructionBit : regs[WL_PC], regs[WL_SP], regs[WL_FP]};
  if (unwind.cursor.exact != 0) note_interrupted();
  return Answer::kStepped;
}

// wl_env::read. The memory below sp has been popped, and may have other contents by now. So rules that read there are
// left to the walk with all registers.
int FastWalk::read_for_rule(void* walk, void* to, __u32 size, __u64 address) {
  auto& self = *static_cast<FastWalk*>(walk);
  auto* words = static_cast<std::uint64_t*>(to);
  if (size % sizeof *words != 0 || address < self.state_.sp) return 1;
  for (std::uint32_t i = 0; i < size / sizeof *words; ++i)
    if (!self.load(address + i * sizeof *words, words[i])) return 1;
  return 0;
}

// The walker of all registers, knowing only these three.
[[gnu::noinline]] FastWalk::Answer FastWalk::by_walker(FastWalkState& caller) {
  Registers registers(kOwnArchitecture);
  const bool is_instruction = (state_.key & kInstructionBit) != 0;
  const std::uint64_t pc = state_.key & ~kInstructionBit;
  registers.set_pc(is_instruction ? CodeAddress::instruction(pc) : CodeAddress::return_address(pc));
  registers.set_sp(state_.sp);
  const RegisterNumber fp = Registers::fp_number(kOwnArchitecture);
  registers.set(fp, state_.fp);
  WalkOptions options;
  options.written_begin = written_;
  options.written_end = written_ + written_size_;
  options.max_followed = may_follow_;
  StackWalker walker(own_process(), registers, options);
  const bool stepped = walker.step();
  may_follow_ = walker.may_follow();
  if (!stepped) {
    const bool guessed = walker.end_reason() == WalkEnd::kGuessed || walker.end_reason() == WalkEnd::kChained;
    guessed_ |= guessed;
    return guessed || walker.end_reason() == WalkEnd::kComplete ? Answer::kEnd : Answer::kCannot;
  }
  const Registers& found = walker.frame().registers;
  if (!found.has(fp) || !found.has_sp()) return Answer::kCannot;
  if (!progress_.allows(state_.sp, found.sp(), found.pc().value() == pc)) return Answer::kCannot;
  guessed_ |= walker.certainty() >= FrameCertainty::kChained;
  caller.key = found.pc().value() | (found.pc().is_return_address() ? 0 : kInstructionBit);
  if (!found.pc().is_return_address()) note_interrupted();
  caller.sp = found.sp();
  caller.fp = found.get(fp);
  return Answer::kStepped;
}

// The rule of a pc in `module_`, from its table or call frame information. False where there is none.
[[gnu::hot]] bool FastWalk::find_new_rule(std::uint64_t key, table::TraceRule& rule) {
  if (const PreparedRules* prepared = module_->prepared()) {
    rule = prepared->rule(lookup_address(key) - module_->object().bias);
    return rule.cfa_kind != WL_CFA_NONE;
  }
  if (!cfi_rules_) cfi_rules_.emplace();
  return cfi_rules_->find(*module_, key, rule);
}

// A pc that is not in the cache. Callers are mostly of one module, and finding that takes as long as finding the rule.
[[gnu::noinline, gnu::hot]] FastWalk::Answer FastWalk::by_new_rule(FastWalkState& caller, Slots& slots) {
  const std::uint64_t address = lookup_address(state_.key);
  if (module_ == nullptr || !module_->stays_at(address)) module_ = OwnModules::find(address);
  // Code without a description, or no code. The walk with all registers asks the kernel once for all frames of this
  // kind.
  if (module_ == nullptr) return Answer::kCannot;
  table::TraceRule rule{};
  const bool found = find_new_rule(state_.key, rule);
  return by_found_rule(found ? &rule : nullptr, module_->tag(), caller, slots);
}

// Nothing about a code range is kept. Each use would have to check that the range is still the same one, and that costs
// as much as finding it.
[[gnu::noinline]] FastWalk::Answer FastWalk::by_code_range(const Module& range, FastWalkState& caller, Slots& slots) {
  FrameRow row;
  table::TraceRule rule{};
  const bool found = range.row_at(lookup_address(state_.key), row).has_value();
  if (found) rule = table::project(row, kOwnArchitecture, WL_NO_XREG);
  return by_found_rule(found ? &rule : nullptr, OwnModule::kUncacheable, caller, slots);
}

// By a rule that is not in the cache, or (null) without: the walker of all registers may know how.
[[gnu::hot]] FastWalk::Answer FastWalk::by_found_rule(const table::TraceRule* rule, std::uint16_t tag,
                                                      FastWalkState& caller, Slots& slots) {
  const bool keep = tag != OwnModule::kUncacheable;
  Answer answer = Answer::kCannot;
  std::uint64_t index = 0;
  PackedStep step = PackedStep::other(PackedStep::kAllRegisters, tag);
  if (rule != nullptr) {
    if (PackedStep::pack(*rule, (state_.key & kInstructionBit) != 0, tag, step)) {
      answer = by_rule(step, caller, slots);
    } else if (rule->ra_kind == WL_REG_UNDEFINED) {
      answer = by_no_caller(caller, slots);
      step = PackedStep::other(PackedStep::kPalette, tag, PackedStep::kOutermost);
    } else {
      answer = by_full_rule(*rule, caller);
      if (keep && answer != Answer::kCannot && RuleCache::intern(*rule, index))
        step = PackedStep::other(PackedStep::kPalette, tag, index);
    }
  }
  if (answer == Answer::kCannot || (state_.key & kInstructionBit) != 0) {
    // What unwind information says about an instruction may be contradicted by the code.
    FastWalkState exact;
    const Answer exactly = by_walker(exact);
    if (exactly != answer || (answer == Answer::kStepped && exact != caller)) {
      step = PackedStep::other(PackedStep::kAllRegisters, tag);
      slots = Slots();
      answer = exactly;
      caller = exact;
    }
  }
  if (keep) RuleCache::insert(state_.key, step);
  if (tag != OwnModule::kNeverUnloaded) slots = Slots();
  return answer;
}

[[gnu::hot]] FastWalk::Answer FastWalk::find_caller(FastWalkState& caller, Slots& slots) {
  // Before what is kept: a range may lie in a loaded module's data, whose pcs no walk could have met with a rule.
  if (code_ != nullptr) [[unlikely]] {
    if (const Module* range = code_->find(lookup_address(state_.key)); range != nullptr)
      return by_code_range(*range, caller, slots);
  }
  PackedStep rule;
  if (!RuleCache::View().find(state_.key, rule)) [[unlikely]]
    return by_new_rule(caller, slots);
  if (rule.tag() != OwnModule::kNeverUnloaded) [[unlikely]] {
    if (!is_current(rule.tag())) return by_new_rule(caller, slots);
  }
  Answer answer = Answer::kCannot;
  if (rule.simple()) [[likely]] {
    answer = by_rule(rule, caller, slots);
  } else if (rule.is(PackedStep::kPalette, rule.tag())) {
    if (table::TraceRule full; rule.index() == PackedStep::kOutermost)
      answer = by_no_caller(caller, slots);
    else if (RuleCache::palette(rule.index(), full))
      answer = by_full_rule(full, caller);
  }
  if (answer == Answer::kCannot || rule.tag() != OwnModule::kNeverUnloaded) [[unlikely]] {
    slots = Slots();
    if (answer == Answer::kCannot) return by_walker(caller);
  }
  return answer;
}

[[gnu::hot]] bool FastWalk::step() {
  const CodeInUse code(*this);
  FastWalkState caller;
  Slots slots;
  const Answer answer = find_caller(caller, slots);
  if (answer == Answer::kStepped) {
    go_to(caller);
    return true;
  }
  end(answer);
  return false;
}

[[gnu::hot]] void FastWalk::end(Answer answer) {
  const Outcome outermost = guessed_ ? Outcome::kGuessed : Outcome::kComplete;
  outcome_ = answer == Answer::kEnd ? outermost : Outcome::kNeedsAllRegisters;
}

// Is the current frame one of the record's? Then it is [old_ - 1]. By halving, without a branch that depends on the
// stack: where frames of another stack lie, no branch predictor knows. So all of the record is searched each time; what
// lies behind [old_ - 1], or has been written over, is below sp.
inline bool FastWalk::joins() {
  const RecordedFrame* frame = &(*record_)[0];
  for (std::size_t rest = record_->size(); rest > 1;) {
    const std::size_t half = rest / 2;
    frame += frame[half].sp >= state_.sp ? half : 0;
    rest -= half;
  }
  old_ = frame->sp >= state_.sp ? static_cast<std::size_t>(frame - &(*record_)[0]) + 1 : 0;
  return frame->key == state_.key && frame->sp == state_.sp && frame->fp == state_.fp;
}

// From [current] on, as far out as the stack is what it was. True at the end of the walk.
WINDLASS_READS_STACKS inline bool FastWalk::replay(std::size_t& current, std::uint64_t* pcs, std::size_t& count,
                                                   std::size_t max) {
  const RecordedFrame* frame = &(*record_)[current];
  const RecordedFrame* const outermost = &(*record_)[0];
  bool ended = false;
  while (frame != outermost) {
    const RecordedFrame& next = frame[-1];
    if (next.sp > stack_.high) [[unlikely]]
      break;
    const std::uint64_t* const fp_slot = frame->fp_slot != frame->return_slot ? frame->fp_slot : &frame->fp;
    if (without_authentication(load_word(frame->return_slot)) != next.key || load_word(fp_slot) != next.fp) [[unlikely]]
      break;
    --frame;
    if (next.key == 0) [[unlikely]] {
      outcome_ = Outcome::kComplete;
      ended = true;
      break;
    }
    pcs[count++] = next.key;
    if (count == max) [[unlikely]] {
      ended = true;
      break;
    }
  }
  current = static_cast<std::size_t>(frame - outermost);
  state_ = {frame->key, frame->sp, frame->fp};
  return ended;
}

// The simple rule of a return address that is not in the cache, in a module that stays: most of new functions.
[[gnu::noinline, gnu::hot]] bool FastWalk::find_simple(std::uint64_t key, PackedStep& step) {
  const std::uint64_t address = lookup_address(key);
  if (module_ == nullptr || !module_->stays_at(address)) {
    module_ = OwnModules::find(address);
    if (module_ == nullptr || !module_->stays_at(address)) return false;
  }
  if (const PreparedRules* prepared = module_->prepared()) {
    step = prepared->step(address - module_->object().bias);
    return step.simple();
  }
  table::TraceRule rule{};
  return find_new_rule(key, rule) && PackedStep::pack(rule, false, OwnModule::kNeverUnloaded, step);
}

// Takes at most `steps` steps from a return address by the simple rules of modules that stay, with the state in
// registers. Nearly all frames of a changed stack are of this kind. find_caller() would give the same frames. Returns
// the new count.
[[gnu::hot]] std::size_t FastWalk::run_ahead(std::uint64_t* pcs, std::size_t count, std::size_t steps) {
  if ((state_.key & kInstructionBit) != 0) return count;
  const std::size_t room = record_->room(old_);
  if (steps > room) steps = room;
  RecordedFrame* const begin = record_->fresh();
  RecordedFrame* recorded = begin;
  FastWalkState frame = state_;
  // What is written to may lie on this stack, and no frame up to there reads it.
  std::uint64_t high = stack_.high;
  if (written_ + written_size_ > frame.sp && written_ < high) high = written_;
  RuleCache::View rules;
  std::uint64_t* out = pcs + count;
  for (const std::uint64_t* const end = out + steps; out != end;) {
    PackedStep rule;
    const bool known = rules.find_return(frame.key, rule);
    if (!known && !find_simple(frame.key, rule)) [[unlikely]]
      break;
    if (!rule.is(PackedStep::kFromSp, OwnModule::kNeverUnloaded) &&
        !rule.is(PackedStep::kFromFp, OwnModule::kNeverUnloaded)) [[unlikely]]
      break;
    const SimpleFrame at(rule, frame);
    if (at.cfa > high || !at.leads_out(rule, frame)) [[unlikely]]
      break;
    FastWalkState caller;
    Slots slots;
    if (load_caller(rule, at, frame, caller, slots) != Answer::kStepped) [[unlikely]]
      break;
    if (!known) [[unlikely]] {
      RuleCache::insert(frame.key, rule);
      rules = {};  // it may have grown
    }
    *--recorded = {frame.key, frame.sp, frame.fp, slots.return_slot, slots.fp_slot};
    frame = caller;
    *out++ = frame.key;
  }
  record_->added(static_cast<std::size_t>(begin - recorded));
  state_ = frame;
  return static_cast<std::size_t>(out - pcs);
}

[[gnu::hot]] std::size_t FastWalk::run(std::uint64_t* pcs, std::size_t max) {
  const CodeInUse code(*this);
  written_ = reinterpret_cast<std::uint64_t>(pcs);
  written_size_ = max * sizeof *pcs;
  record_ = WalkRecord::acquire();
  bool recording = record_ != nullptr;
  old_ = recording ? record_->size() : 0;
  std::size_t count = 0;
  std::size_t current = 0;  // while in place: the current frame is the record's [current]
  bool in_place = false;
  std::size_t untested = 4;  // frames until the next test whether the record has one: a test may take as long as a step
  pcs[count++] = state_.key & ~kInstructionBit;
  while (count < max) {
    if (old_ != 0) {
      if (!in_place && joins()) {
        in_place = true;
        current = old_ - 1;
      }
      if (in_place && replay(current, pcs, count, max)) break;
    }
    if (!in_place && recording && code_ == nullptr) {
      constexpr std::size_t kMostUntested = 16;
      const std::size_t before = count;
      const std::size_t most = max - count;
      count = run_ahead(pcs, count, old_ != 0 && untested < most ? untested : most);
      if (untested < kMostUntested) untested *= 4;
      if (count != before) continue;
    }
    FastWalkState caller;
    Slots slots;
    const Answer answer = find_caller(caller, slots);
    if (in_place) {
      // A step that cannot be replayed may lead where it led before.
      const RecordedFrame* next = current != 0 ? &(*record_)[current - 1] : nullptr;
      if (answer == Answer::kEnd && next != nullptr && next->key == 0) {
        end(answer);
        break;
      }
      if (answer == Answer::kStepped && next != nullptr && next->key == caller.key && next->sp == caller.sp &&
          next->fp == caller.fp) {
        --current;
        go_to(caller);
        pcs[count++] = state_.key & ~kInstructionBit;
        continue;
      }
      record_->take(current + 1, old_);
      old_ = current;
      in_place = false;
    }
    if (recording) recording = record_->add({state_.key, state_.sp, state_.fp, slots.return_slot, slots.fp_slot}, old_);
    if (answer != Answer::kStepped) {
      end(answer);
      if (recording && answer == Answer::kEnd) (void)record_->add({0, 0, caller.fp, &kBarrier, &kBarrier}, 0);
      break;
    }
    go_to(caller);
    pcs[count++] = state_.key & ~kInstructionBit;
  }
  written_size_ = 0;
  if (record_ != nullptr) {
    record_->finish(in_place ? old_ : 0);
    record_->release();
    record_ = nullptr;
  }
  return count;
}

}  // namespace windlass::walk
