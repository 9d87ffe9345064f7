// Call frame information of ELF files, unless the code contradicts it.
#include <span>

#include "flow/eh_return.h"
#include "flow/frame_address.h"
#include "flow/stack_effect.h"
#include "flow/stack_switch.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

// A row that tells of registers in a jmp_buf or ucontext (longjmp, setcontext): the CFA is a pointer to it, and they
// lie above. It says where the jump will lead, not who called.
bool installs_context(const FrameRow& row) {
  if (!row.cfa.is(CfaRule::kRegister) || row.signal_frame) return false;
  for (const RegisterEntry entry : row.registers)
    if (entry.rule.is(RegisterRule::kAtCfa) && entry.rule.offset() >= 0) return true;
  return false;
}

// Until sp itself is replaced, the caller is still where the row before said. Registers that already hold what the
// context has for them are lost.
bool before_context(const StepContext& context, const FrameRow& row, Step& step) {
  const Registers& frame = context.frame.registers;
  Step installed;
  apply_row(context, row, FrameOrigin::kCfi, installed);
  const RegisterNumber sp = Registers::sp_number(frame.architecture());
  const RegisterRule* new_sp = row.registers.find(sp);
  if (!installed.status.ok() || new_sp == nullptr || installed.caller.sp() == frame.sp()) return false;
  FrameRow before;
  if (!context.module->row_at(row.begin - 1, before) || installs_context(before)) return false;
  apply_row(context, before, FrameOrigin::kCfi, step);
  if (!step.status.ok() || !accept(context, step)) return false;
  if (context.frame.pc().value() == row.begin) return true;  // none has been written
  for (const RegisterEntry entry : row.registers)
    if (entry.reg != sp && frame.get(entry.reg) == installed.caller.get(entry.reg)) step.caller.forget(entry.reg);
  return true;
}

// Where row and code agree about the frame, the frame is as described. Unwind information knows a register better than
// code that restores it from another register, or not at all. For example helpers with calling conventions of their
// own, and swapcontext's way out after an error.
void keep_known(const Step& by_row, const FrameRow& code_row, Step& by_code) {
  by_code.certainty = FrameCertainty::kProved;
  if (!by_row.status.ok() || !by_code.status.ok() || by_row.caller.sp() != by_code.caller.sp() ||
      by_row.caller.pc() != by_code.caller.pc())
    return;
  by_code.certainty = FrameCertainty::kDescribed;
  by_row.caller.for_each([&](RegisterNumber reg, std::uint64_t value) {
    const RegisterRule* rule = code_row.registers.find(reg);
    if (by_code.caller.has(reg) && (rule == nullptr || !rule->is(RegisterRule::kInRegister))) return;
    by_code.caller.set(reg, value);
    by_code.saved.set(by_code.caller, reg, by_row.saved.at(by_row.caller, reg));
  });
}

// Does the row lead to a caller behind a call? What a return of a retpoline thunk goes to is none.
bool is_called(const StepContext& context, const FrameRow& row, Step step) {
  return step.status.ok() &&
         with_code(context, [&](const flow::CodeSource& source) { return believable(context, row, step, source); });
}

// Does the code say otherwise than the row, which led to `step`? Compilers' unwind information is right at calls, but
// seldom throughout epilogues, and hand-written code's may lack pushes. `agrees`: it was asked, and says nothing else.
bool by_contradiction(const StepContext& context, const FrameRow& row, Step& step, bool& agrees) {
  if (!context.options.synthesize || context.module->is_exact()) return false;
  const auto other = contradiction(context, row);
  agrees = !other;
  if (!other) return false;
  Step trial;
  apply_row(context, *other, FrameOrigin::kSynthesis, trial);
  if (!accept(context, trial)) return false;
  const bool goes_on = trial.status.ok();  // an end needs no call
  if (goes_on && is_called(context, row, step) && !is_called(context, *other, trial)) return false;
  keep_known(step, *other, trial);
  step = trial;
  return true;
}

// Does the code at `pc` go straight to a return or out of the function, with rbp as it is?
bool leaves_with_rbp(const StepContext& context, std::uint64_t pc) {
  constexpr std::size_t kMostBytes = 32;  // with the last instruction's length
  constexpr std::uint8_t kLeave = 0xc9;
  using Kind = flow::StackEffect::Kind;
  std::uint8_t code[kMostBytes];
  if (!read_code(context, pc, code, sizeof code)) return false;
  flow::StraightCode line{ByteView(std::span(code)), pc, sizeof code};
  while (const auto effect = line.next()) {
    if (code[line.offset()] == kLeave) return false;
    switch (effect->kind) {
      case Kind::kReturn: return true;
      case Kind::kJump: {
        const auto function = context.module->function_at(pc);
        return function && effect->target - function->begin >= function->end - function->begin;
      }
      case Kind::kPop:
        if (effect->reg == x86_64::kRbp) return false;
        break;
      case Kind::kNone:
      case Kind::kMove:
      case Kind::kUnknown: break;  // lea rsp, [r10 - 8]
      default: return false;
    }
  }
  return false;
}

// GCC's epilogues of realigned frames keep the rules of the body. So registers that have been popped, rbp too, are
// described as saved where rbp points. (contradicts() finds this as well, where the function returns. Some of these
// functions leave by a jump through a register.)
void correct_popped_frame(const StepContext& context, FrameRow& row) {
  constexpr std::uint8_t kBreg6 = 0x76;  // DW_OP_breg6: rbp
  const CodeAddress pc = context.frame.pc();
  const auto by_rbp = [&row](const RegisterRule& rule) {
    if (rule.is(RegisterRule::kAtRegister)) return rule.reg() == x86_64::kRbp;
    return rule.is(RegisterRule::kAtExpression) && !row.expression(rule).empty() &&
           row.expression(rule).u8()[0] == kBreg6;
  };
  const RegisterRule* rbp = row.registers.find(x86_64::kRbp);
  if (context.space.architecture() != Architecture::kX86_64 || pc.is_return_address() || rbp == nullptr ||
      !by_rbp(*rbp) || !row.cfa.is(CfaRule::kRegister) || row.cfa.reg() == x86_64::kRbp ||
      !leaves_with_rbp(context, pc.value()))
    return;
  const FrameRow given = row;
  for (const RegisterEntry entry : given.registers)
    if (by_rbp(entry.rule)) (void)row.registers.set(entry.reg, RegisterRule::same_value());
}

// Puts right the row of a function that counts from rbp what is rsp's: flow/frame_address.h.
void correct_frame_address(const StepContext& context, FrameRow& row) {
  constexpr std::int32_t kUsual = 16;  // push rbp; mov rbp, rsp
  if (context.space.architecture() != Architecture::kX86_64 || !row.cfa.is_at(x86_64::kRbp) ||
      row.cfa.offset() == kUsual)
    return;
  const auto function = context.module->function_at(context.frame.pc().lookup());
  FrameRow before, at;
  if (!function || !context.module->row_at(function->begin, before)) return;
  for (; before.cfa.is_at(x86_64::kRsp) && before.end < function->end; before = at) {
    if (!context.module->row_at(before.end, at)) return;
    if (at.cfa == row.cfa) break;
  }
  std::byte code[flow::kLongestFrameAddress];
  if (before.cfa != CfaRule::at(x86_64::kRsp, row.cfa.offset()) || at.cfa != row.cfa ||
      !read_code(context, at.begin - sizeof code, code, sizeof code))
    return;
  const std::int32_t distance = flow::frame_address_at_end(ByteView(code, sizeof code));
  if (distance <= 0) return;
  row.cfa = CfaRule::at(x86_64::kRbp, row.cfa.offset() - distance);
  FrameRow right = row;
  for (const RegisterEntry entry : row.registers) {
    const RegisterRule* known = before.registers.find(entry.reg);
    const bool same = known != nullptr && *known == entry.rule;
    if (entry.rule.is(RegisterRule::kAtCfa) && !same)  // saved behind the instruction, it counts from rbp, too
      (void)right.registers.set(entry.reg, RegisterRule::at_cfa(entry.rule.offset() + distance));
  }
  row = right;
}

// Is the return address where no callee puts it? glibc's _dl_runtime_resolve on AArch64, whose CFA leaves out what the
// linkage table pushed. The code knows better.
bool return_address_outside(const FrameRow& row) {
  return row.return_address.is(RegisterRule::kAtCfa) && row.return_address.offset() >= 0 && row.cfa.is_at(aarch64::kSp);
}

// Where sp is not known. A function that saves x29 and x30 side by side makes a frame record of them and keeps x29 at
// it (AAPCS64 6.4.6): CFA = x29 - the record's offset. False for other rows.
bool from_frame_record(FrameRow& row) {
  const RegisterRule* fp = row.registers.find(aarch64::kX29);
  const RegisterRule& pc = row.return_address;
  if (!row.cfa.is_at(aarch64::kSp) || fp == nullptr || !fp->is(RegisterRule::kAtCfa) || !pc.is(RegisterRule::kAtCfa) ||
      pc.offset() != std::int64_t{fp->offset()} + 8 || !fits_row(-std::int64_t{fp->offset()}))
    return false;
  row.cfa = CfaRule::at(aarch64::kX29, -fp->offset());
  return true;
}

void by_frame_record(const StepContext& context, FrameRow& row, Step& step) {
  const bool by_record = from_frame_record(row);
  apply_row(context, row, FrameOrigin::kCfi, step);
  const bool can_be =
      by_record
          ? with_code(context, [&](const flow::CodeSource& source) { return believable(context, row, step, source); })
          : accept(context, step);
  if (by_record && !can_be)
    step.status = {WalkEnd::kLost, Error{ErrorCode::kNotFound, "sp is not known, and x29 leads to no caller",
                                         context.frame.pc().value()}};
}

// An interrupted function whose only description is that of its entry, and that has switched to another stack. The top
// of that stack need not be the return address.
bool on_another_stack(const StepContext& context, const FrameRow& row) {
  const std::uint64_t pc = context.frame.pc().value();
  if (context.space.architecture() != Architecture::kX86_64 || row.cfa != CfaRule::at(x86_64::kRsp, 8) ||
      row.registers.size() != 0 || pc - row.begin > flow::kLargestSwitch)
    return false;
  std::byte code[flow::kLargestSwitch];
  const std::size_t size = pc - row.begin;
  return read_code(context.space, row.begin, code, size) &&
         flow::replaces_stack(ByteView(code, size), row.begin).has_value();
}

// Can the instruction be one that is left before the jump to a landing pad, whose row has the rules of eh_return's
// frame no more? i386: the last. AArch64: either of two, behind which the function does nothing else.
bool may_have_left(const StepContext& context, const FrameRow& row) {
  switch (context.space.architecture()) {
    case Architecture::kI386: return row.cfa == CfaRule::at(i386::kEcx, 4) || row.cfa == CfaRule::at(i386::kEsp, 4);
    case Architecture::kAArch64:
      return row.cfa == CfaRule::at(aarch64::kSp, 0) && row.end - row.begin == flow::kEhReturnEnd &&
             row.registers.size() == 0;
    case Architecture::kX86_64: break;
  }
  return false;
}

// Is the row's answer for this pc the same whatever registers and stack are? At a call, what was accepted is never
// asked of the code. Of an instruction the code is asked by its bytes alone, but where the row is that of a function's
// entry.
bool may_be_kept(const StepContext& context, const FrameRow& row, const Step& step, bool code_agrees) {
  if (return_address_outside(row) || flow::saves_landing_registers(row, context.space.architecture())) return false;
  if (context.frame.pc().is_return_address())
    return step.status.ok() ||
           (step.status.end == WalkEnd::kComplete && row.return_address.is(RegisterRule::kUndefined));
  const Architecture architecture = context.space.architecture();
  const auto word = static_cast<std::int32_t>(Registers::word_size(architecture));
  const CfaRule entry = CfaRule::at(Registers::sp_number(architecture), word);
  return code_agrees && step.status.ok() && row.cfa != entry && !installs_context(row) && !may_have_left(context, row);
}

// By its row the frame at hand is the outermost one: is that proven? Where not, the code may know a caller; true if it
// does. A managed runtime's code has always been entered from other code, unless its row says that nobody called it.
bool goes_on_by_code(const StepContext& context, const FrameRow& row, Step& step) {
  const bool is_managed = context.in_generated_code() && context.module->is_exact();
  const sources::EndProof proof = is_managed && !row.return_address.is(RegisterRule::kUndefined)
                                      ? sources::EndProof::kNone
                                      : context.module->end_proof(context.frame.pc());
  if (proof == sources::EndProof::kProven) return false;
  if (proof == sources::EndProof::kRefuted && by_synthesis(context, step)) return true;
  step.status = guessed_end(context);
  return false;
}

bool leads_nowhere(const StepContext& context, const FrameRow& row, Step& step) {
  return step.status.end == WalkEnd::kComplete ||
         !with_code(context, [&](const flow::CodeSource& source) { return believable(context, row, step, source); });
}

}  // namespace

bool by_cfi(const StepContext& context, Step& step) {
  const CodeAddress pc = context.frame.pc();
  FrameRow row;
  if (const auto found = context.module->row_at(pc.lookup(), row); !found) {
    if (found.error().code != ErrorCode::kNotFound) step.status = {WalkEnd::kBadRow, found.error()};
    return false;
  }
  if (row.signal_frame && by_signal_trampoline(context, step)) return true;
  if (begins_with_frame(context, row) && by_described_entry(context, row, step)) return true;
  correct_frame_address(context, row);
  correct_popped_frame(context, row);
  if (context.space.architecture() == Architecture::kAArch64 && !context.frame.registers.has_sp()) {
    by_frame_record(context, row, step);
    return true;
  }
  const bool exact = !pc.is_return_address();
  const bool may_land =
      flow::saves_landing_registers(row, context.space.architecture()) || (exact && may_have_left(context, row));
  if (may_land && by_landing(context, row, step)) return true;
  if (exact && installs_context(row) && before_context(context, row, step)) return true;
  apply_row(context, row, FrameOrigin::kCfi, step);
  if (step.status.end == WalkEnd::kComplete && goes_on_by_code(context, row, step)) return true;
  // An interrupted instruction may stand anywhere; a row that leads nowhere is wrong at a call, too.
  const StepStatus applied = step.status;
  bool accepted = accept(context, step, exact ? Trust::kNone : Trust::kFull);
  // The row is right at a call, the registers are not: whatever else the stack holds there is no caller.
  if (!exact && applied.ok() && in_what_is_written(context, step)) return true;
  bool code_agrees = false;
  if ((exact || !accepted || return_address_outside(row)) && by_contradiction(context, row, step, code_agrees))
    return true;
  if (exact && on_another_stack(context, row) && leads_nowhere(context, row, step)) {
    step.status = {WalkEnd::kLost, Error{ErrorCode::kNotFound, "the stack has just been replaced", pc.value()}};
    return true;
  }
  if (!accepted && exact) {
    step.status = applied;
    accepted = accept(context, step, Trust::kFull);
    code_agrees = false;
  }
  if (!accepted) (void)by_synthesis(context, step);  // else that is how the walk ends
  if (accepted && may_be_kept(context, row, step, code_agrees))
    context.scratch.rows.keep(context.rows_id, pc, row, FrameOrigin::kCfi, context.space.architecture());
  return true;
}

}  // namespace windlass::walk
