// A step by followed code that other stacks repeat. The agent teaches the kernel side such steps.
#pragma once

#include <cstdint>
#include <memory>

#include "flow/whole_function.h"
#include "walk/step_context.h"

namespace windlass::walk {

// A frame at `pc` has the caller that `row` says, with this certainty, if
// - the row finds `caller` as the return address;
// - its CFA is `from_sp` above rsp and `from_fp` above rbp. 0: it may be anywhere above;
// - the word `word_at` above rsp is what `word` says: the agent looks there for a return address first.
// A caller of 0: the frame is the outermost one. If `from_fp` is not 0, rbp has to be 0.
struct SteadyStep {
  enum class Word : std::uint8_t { kAny, kZero, kNoReturnAddress };
  CodeAddress pc;
  const FrameRow& row;
  std::uint64_t caller = 0;
  FrameCertainty certainty = FrameCertainty::kProved;
  std::int32_t from_sp = 0, from_fp = 0;
  Word word = Word::kAny;
  std::int32_t word_at = 0;
  // The code at `pc`, and that before the caller's, may be other code later.
  bool code_changes = false, caller_changes = false;
  // The function that has proved the step: its other rows hold as well, for every caller. Null: there is none.
  // `function_bias`: an address in the process less that in the function. If the code may change, compare it.
  std::shared_ptr<const flow::WholeFunction> function = nullptr;
  std::uint64_t function_bias = 0;
};

// Notes from here on what the step depends on.
void begin_steady_step(const StepContext& context);
// The step depends on more.
void expect_other_steps(const StepContext& context);
// Tells the listener of the module's memo of the step, if no other stack with the values of a SteadyStep comes to
// another one. `call` is what by_call_site() found. `left_out`: a row that led to the address 0; null: there was none.
void tell_steady_step(const StepContext& context, const flow::Synthesis& found, const CallCheck& call, Step& step,
                      const FrameRow* left_out = nullptr);
// The same of the place where the program starts.
void tell_steady_end(const StepContext& context, const flow::Synthesis& found);

}  // namespace windlass::walk
