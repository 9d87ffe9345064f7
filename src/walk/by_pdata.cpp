// Frames in PE images. Their unwind information is exact throughout a function, epilogues included, so the code is not
// asked to contradict it. Sources: "x64 exception handling", "ARM64 exception handling" (Microsoft).
#include "walk/question.h"

namespace windlass::walk {
namespace {

WalkEnd end_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnreadable: return WalkEnd::kUnreadable;
    case ErrorCode::kNotFound: return WalkEnd::kLost;
    default: return WalkEnd::kBadRow;
  }
}

// What no row can say: the frames that a system builds for interrupts and exceptions, registers used after they were
// restored.
void execute(const Question& question, Step& step) {
  const AddressSpace& space = question.space;
  step.saved = question.frame.saved;
  step.origin = FrameOrigin::kPdata;
  step.module_known = false;
  const auto done =
      question.module->unwind(space.memory(), space.pointer_mask(), question.frame.registers, step.caller, step.saved);
  step.status = {};
  if (!done)
    step.status = {end_of(done.error().code), done.error()};
  else if (step.caller.pc().value() == 0)
    step.status.end = WalkEnd::kComplete;
  step.signal_frame = !step.caller.pc().is_return_address();
}

}  // namespace

bool by_pdata(const Question& question, Step& step) {
  const Module& module = *question.module;
  const CodeAddress pc = question.frame.pc();
  FrameRow row;
  RowStorage storage;
  const auto found = module.row_at(pc.lookup(), row, storage);
  if (found) {
    apply_row(question, row, FrameOrigin::kPdata, step);
  } else if (found.error().code == ErrorCode::kNotFound) {
    return by_leaf(question, step);
  } else {
    execute(question, step);
    if (step.status.end == WalkEnd::kBadRow) return false;
  }
  if (!accept(question.space, step)) {
    (void)by_synthesis(question, step);  // else that is how the walk ends
    return true;
  }
  if (found && step.status.ok() && pc.is_return_address())
    question.scratch.rows.keep(module.id(), pc.value(), row, FrameOrigin::kPdata, question.space.architecture());
  return true;
}

}  // namespace windlass::walk
