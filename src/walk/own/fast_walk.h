// A walk of the own stack that finds pcs only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "walk/code_answers.h"
#include "walk/code_ranges.h"
#include "walk/own/cfi_rules.h"
#include "walk/own/record.h"
#include "walk/own/rules.h"
#include "walk/own/simple_frame.h"
#include "walk/progress.h"

namespace windlass::walk {

class OwnModule;

// The functions of a walk are marked hot wherever they are: the linker puts those side by side. So the first walk of a
// process maps few pages of code.
class FastWalk {
 public:
  enum class Outcome : std::uint8_t {
    kComplete,           // the outermost frame was reached
    kGuessed,            // so it seems
    kMore,               // `max` was
    kNeedsAllRegisters,  // only a walk with all registers can tell the caller, or that there is none
  };

  // `live`: the caller's own frame stands at sp.
  FastWalk(const FastWalkState& start, bool live);

  // Writes the pcs of the current frame and its callers; returns how many. Recognises the thread's last such walk, and
  // is remembered as the last.
  std::size_t run(std::uint64_t* pcs, std::size_t max);
  // Goes to the caller. False at the end.
  bool step();
  [[nodiscard]] const FastWalkState& state() const { return state_; }
  [[nodiscard]] Outcome outcome() const { return outcome_; }
  // Is a frame so far a guess?
  [[nodiscard]] bool guessed() const { return guessed_; }
  // What a walk that goes on may follow (WalkOptions::max_followed). What was interrupted waits for the walk, be it the
  // first frame or one behind a signal handler's.
  [[nodiscard]] std::uint32_t may_follow() const { return may_follow_; }

 private:
  struct CodeInUse;
  struct Slots {
    const std::uint64_t* return_slot = &kBarrier;
    const std::uint64_t* fp_slot = &kBarrier;
  };
  enum class Answer : std::uint8_t { kStepped, kEnd, kCannot };

  Answer find_caller(FastWalkState& caller, Slots& slots);
  Answer by_code_range(const Module& range, FastWalkState& caller, Slots& slots);
  static Answer load_caller(PackedStep rule, const SimpleFrame& at, const FastWalkState& frame, FastWalkState& caller,
                            Slots& slots);
  Answer by_rule(PackedStep rule, FastWalkState& caller, Slots& slots);
  Answer by_no_caller(FastWalkState& caller, Slots& slots);
  Answer by_full_rule(const table::TraceRule& rule, FastWalkState& caller);
  bool find_new_rule(std::uint64_t key, table::TraceRule& rule);
  Answer by_new_rule(FastWalkState& caller, Slots& slots);
  Answer by_found_rule(const table::TraceRule* rule, std::uint16_t tag, FastWalkState& caller, Slots& slots);
  Answer by_walker(FastWalkState& caller);
  void note_interrupted() { may_follow_ = std::min(may_follow_, kMostFollowedInHandler); }
  static int read_for_rule(void* walk, void* to, unsigned size, unsigned long long address);
  bool is_current(std::uint16_t tag);
  bool load(std::uint64_t address, std::uint64_t& value);
  void go_to(const FastWalkState& caller);
  void end(Answer answer);

  bool find_simple(std::uint64_t key, PackedStep& step);
  std::size_t run_ahead(std::uint64_t* pcs, std::size_t count, std::size_t steps);
  [[nodiscard]] bool joins();
  bool replay(std::size_t& current, std::uint64_t* pcs, std::size_t& count, std::size_t max);

  FastWalkState state_;
  StackRange stack_;
  const CodeRanges::View* code_ = nullptr;  // while a step or run goes on; null: there is none
  WalkRecord* record_ = nullptr;
  std::size_t old_ = 0;  // this many of the record's frames may still be met
  // Tags of modules met in this walk, that hold: a frame of theirs is on the stack.
  std::uint16_t current_tags_[4] = {};
  std::uint8_t next_tag_ = 0;
  std::optional<CfiRules> cfi_rules_;  // since a pc was new
  const OwnModule* module_ = nullptr;  // of the last frame whose rule was new
  Progress progress_;
  std::uint64_t written_ = 0;       // while run() goes on: the array that it fills,
  std::uint64_t written_size_ = 0;  // in bytes
  std::uint32_t may_follow_ = ~std::uint32_t{0};
  bool guessed_ = false;  // a frame, or what ended the walk, is a guess
  Outcome outcome_ = Outcome::kMore;
};

}  // namespace windlass::walk
