// Results of following the code of the own process, by pc: rows, guesses and refusals. They serve walks that may follow
// little code, because the interrupted code waits for them. So each pc costs such walks only once. A result that one
// walk had no time for is found by a later walk.
#pragma once

#include <optional>

#include "flow/synthesis.h"
#include "walk/step_context.h"

namespace windlass::walk {

// WalkOptions::max_followed of such a walk: below 50 us, also on a busy machine.
inline constexpr std::uint32_t kMostFollowedInHandler = 128;

// What flow::synthesize() has said of a pc.
class KeptAnswer {
 public:
  // Nothing: what was found cannot be kept (a row with many registers).
  [[nodiscard]] static std::optional<KeptAnswer> of(const Expected<flow::Synthesis>& found);
  // Why nothing was found, or what was.
  [[nodiscard]] Expected<flow::Synthesis> at(CodeAddress pc) const;

 private:
  static constexpr unsigned kMostRegisters = 12;
  ByteView expressions_;  // which live for ever
  CfaRule cfa_ = CfaRule::at(0, 0);
  RegisterRule return_address_ = RegisterRule::undefined();
  RegisterRule rules_[kMostRegisters] = {};
  RegisterNumber registers_[kMostRegisters] = {};
  std::uint8_t count_ = 0;
  ErrorCode refused_ = {};
  bool is_refused_ = false;
  flow::Certainty certainty_ = {};
  flow::Start start_ = {};
  bool by_jump_ = false, addresses_frame_ = false, behind_padding_ = false, keeps_frame_record_ = false;
  bool signal_frame_ = false, return_signed_ = false;
};

// follow_code() of the frame in context. In a walk with a budget: by what is kept, where that can be right for the
// stack at hand.
[[nodiscard]] Expected<flow::Synthesis> synthesize(const StepContext& context);

// Does the code at a pc go straight to a halt, by follow_code_at()?
[[nodiscard]] bool goes_to_a_halt(const StepContext& context, CodeAddress pc);

// followed_call() likewise. What depends on more than the two pcs (CallSite of a way in) is not kept.
[[nodiscard]] flow::CallSite call_site(const StepContext& context, CodeAddress caller, FrameRow& way_in);

}  // namespace windlass::walk
