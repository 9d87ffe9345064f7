// The chain of frame pointers.
// x86-64: CFA = rbp + 16, [rbp] = the caller's rbp, [rbp + 8] = the return address.
// i386: the same with ebp and words of 4 bytes.
// AArch64: [x29] = the caller's x29, [x29 + 8] = the return address (AAPCS64 section 6.4.6). The record may lie
// anywhere in the frame, so sp is unknown behind it.
#include "walk/step_context.h"

namespace windlass::walk {

FrameRow frame_pointer_row(Architecture architecture) {
  const auto word = static_cast<std::int32_t>(Registers::word_size(architecture));
  const RegisterNumber fp = Registers::fp_number(architecture);
  FrameRow row;
  row.cfa = CfaRule::at(fp, 2 * word);
  row.return_address = RegisterRule::at_cfa(-word);
  (void)row.registers.set(fp, RegisterRule::at_cfa(-2 * word));
  lose_unsaved(row, architecture);
  if (architecture == Architecture::kAArch64) (void)row.registers.set(aarch64::kSp, RegisterRule::undefined());
  row.return_signed = architecture == Architecture::kAArch64;  // perhaps: without a code, taking it off changes nothing
  return row;
}

bool points_to_frame(const StepContext& context) {
  const Registers& registers = context.frame.registers;
  const RegisterNumber fp = Registers::fp_number(registers.architecture());
  if (!registers.has(fp) || registers.get(fp) < context.lowest()) return false;
  const FrameRow row = frame_pointer_row(registers.architecture());
  Step trial;
  apply_row(context, row, FrameOrigin::kFramePointer, trial);
  return trial.status.ok() &&
         with_code(context, [&](const flow::CodeSource& source) { return believable(context, row, trial, source); });
}

bool by_frame_pointer(const StepContext& context, Step& step) {
  CallCheck check;
  return by_frame_pointer(context, step, false, check);
}

bool by_frame_pointer(const StepContext& context, Step& step, bool follows_code, CallCheck& check) {
  const Registers& registers = context.frame.registers;
  const RegisterNumber fp = Registers::fp_number(registers.architecture());
  // From an instruction in a prologue it would skip a caller and still look right.
  if (!context.frame.pc().is_return_address() || !registers.has(fp)) return false;
  if (registers.get(fp) == 0) {
    if (context.module->is_windows()) return false;
    step.status = guessed_end(context);  // psABI 3.4.1 marks the outermost frame so; elsewhere 0 may be data
    return true;
  }
  if (registers.get(fp) % Registers::word_size(registers.architecture()) != 0 || registers.get(fp) < context.lowest())
    return false;
  const FrameRow row = frame_pointer_row(registers.architecture());
  Step trial;
  apply_row(context, row, FrameOrigin::kFramePointer, trial);
  if (trial.status.end == WalkEnd::kComplete) {
    trial.status = guessed_end(context);
  } else {
    const bool can_be =
        with_code(context, [&](const flow::CodeSource& source) { return believable(context, row, trial, source); });
    if (!can_be) return false;
    trial.certainty = by_call_site(context, trial, follows_code, check);
  }
  step = trial;
  return true;
}

}  // namespace windlass::walk
