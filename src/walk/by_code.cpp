// The code itself: followed to where it returns, or taken for a leaf.
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

// A function of Windows that has not moved sp has all that it must preserve.
void keep_windows_registers(FrameRow& row) {
  for (const RegisterNumber reg : {x86_64::kRsi, x86_64::kRdi})
    (void)row.registers.set(reg, RegisterRule::same_value());
}

bool is_leaf_row(const FrameRow& row) { return row.cfa == CfaRule::at(x86_64::kRsp, 8); }

}  // namespace

bool by_synthesis(const StepContext& context, Step& step) {
  if (!context.options.synthesize || !context.frame.registers.has_sp()) return false;
  auto found = with_code(context, [&](const code::CodeSource& source) {
    return code::synthesize(source, context.frame.pc(), *context.scratch.synthesis);
  });
  if (!found) return false;
  // Interpreters go on by jumps through tables that cannot be followed: that generated code seems never to return is
  // no proof that it has no caller (the JVM's template interpreter).
  if (found->outermost && context.in_generated_code()) return false;
  if (context.space.architecture() == Architecture::kX86_64 && context.module->is_windows() && is_leaf_row(found->row))
    keep_windows_registers(found->row);  // a system call's stub
  Step trial;
  if (found->outermost) {
    trial.status = {WalkEnd::kComplete, {}};
  } else {
    apply_row(context, found->row, FrameOrigin::kSynthesis, trial);
    const bool guess = found->certainty == code::Certainty::kGuess;
    if (guess && trial.status.end == WalkEnd::kComplete) trial.status = guessed_end(context);
  }
  if (!accept(context, trial)) return false;
  step = trial;
  return true;
}

// An interrupted instruction in code that nothing else knows: a jump through a bad pointer, say, or what Windows calls
// a leaf. The caller is still where the call put it. On Windows x64 also where a call has been made: by hand, as Wine's
// system call stubs do, whose unwinder asks no more of code without an entry.
bool by_leaf(const StepContext& context, Step& step) {
  const Architecture architecture = context.space.architecture();
  const bool windows = context.module != nullptr && context.module->is_windows();
  if (context.frame.pc().is_return_address() && !(windows && architecture == Architecture::kX86_64)) return false;
  FrameRow row;
  if (architecture == Architecture::kX86_64) {
    row.cfa = CfaRule::at(x86_64::kRsp, 8);
    row.return_address = RegisterRule::at_cfa(-8);
    if (windows) keep_windows_registers(row);
  } else {
    row.cfa = CfaRule::at(aarch64::kSp, 0);
    row.return_address = RegisterRule::in_register(aarch64::kX30);
  }
  Step trial;
  apply_row(context, row, FrameOrigin::kLeaf, trial);
  const bool can_be =
      with_code(context, [&](const code::CodeSource& source) { return believable(context, row, trial, source); });
  if (!trial.status.ok() || !can_be) return false;
  step = trial;
  return true;
}

}  // namespace windlass::walk
