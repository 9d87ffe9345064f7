// Frames in PE images. Their unwind information is exact throughout a function, epilogues included, so the code is not
// asked to contradict it. Sources: "x64 exception handling", "ARM64 exception handling" (Microsoft).
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

WalkEnd end_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnreadable: return WalkEnd::kUnreadable;
    case ErrorCode::kNotFound: return WalkEnd::kLost;
    default: return WalkEnd::kBadRow;
  }
}

// What no row can say: the frames that a system builds on ARM64, registers used after they were restored.
void execute(const StepContext& context, Step& step) {
  const AddressSpace& space = context.space;
  step.saved = context.frame.saved;
  step.origin = FrameOrigin::kPdata;
  step.certainty = FrameCertainty::kDescribed;
  step.module_known = false;
  const auto done =
      context.module->unwind(space.memory(), space.pointer_mask(), context.frame.registers, step.caller, step.saved);
  step.status = {};
  if (!done)
    step.status = {end_of(done.error().code), done.error()};
  else if (step.caller.pc() == CodeAddress::return_address(0))
    step.status.end = WalkEnd::kComplete;
  step.signal_frame = !step.caller.pc().is_return_address();
}

// Code of another machine: its instructions are not read, so there is no other way to the caller.
void by_foreign(const StepContext& context, Step& step) {
  execute(context, step);
  if (step.status.error.code == ErrorCode::kUnsupported && step.status.end == WalkEnd::kBadRow) {
    step.status.end = WalkEnd::kForeign;
    step.status.error.where = context.frame.pc().value();
  } else if (step.status.end == WalkEnd::kComplete &&
             context.module->end_proof(context.frame.pc()) != sources::EndProof::kProven) {
    step.status = guessed_end(context);
  } else {
    (void)accept(context, step);
  }
}

}  // namespace

bool by_pdata(const StepContext& context, Step& step) {
  const Module& module = *context.module;
  const CodeAddress pc = context.frame.pc();
  if (module.foreign_code(pc.lookup())) {
    by_foreign(context, step);
    return true;
  }
  FrameRow row;
  const auto found = module.row_at(pc.lookup(), row);
  if (found) {
    apply_row(context, row, FrameOrigin::kPdata, step);
  } else if (found.error().code == ErrorCode::kNotFound) {
    return module.may_be_leaf(pc.lookup()) && by_leaf(context, step);
  } else {
    execute(context, step);
    if (step.status.end == WalkEnd::kBadRow) return false;
  }
  if (by_callback(context, step)) return true;
  if (step.status.end == WalkEnd::kComplete && module.end_proof(pc) != sources::EndProof::kProven) {
    step.status = guessed_end(context);
    return true;
  }
  if (!accept(context, step)) {
    (void)by_synthesis(context, step);  // else that is how the walk ends
    return true;
  }
  if (found && step.status.ok() && pc.is_return_address())
    context.scratch.rows.keep(context.rows_id, pc, row, FrameOrigin::kPdata, context.space.architecture());
  return true;
}

}  // namespace windlass::walk
