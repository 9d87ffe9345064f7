// Code that is jumped into with a frame already there: LuaJIT's interpreter and its traces. The interpreter is written
// by hand, and one row describes all of it by the frame that is made at its entries. A trace is generated code that the
// interpreter jumps into. It runs in the interpreter's C frame, below which it has room of its own. Its code does not
// say how much, and never returns.
//
// But the frame itself is known. A call whose target is described as having a frame already has made such a frame: its
// return address stands where the row says. The innermost such return address on the stack is the frame's.
//
// LuaJIT: src/vm_x64.dasc ("Interpreter frame", BC_JLOOP, vm_exit_handler), src/lj_frame.h (CFRAME_SIZE), src/lj_asm.c
// (asm_stack_adjust).
#include "flow/synthesis.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kMostStackWords = 512;  // a trace has at most 256 spilled values, an exit saves all registers
constexpr std::int32_t kLeastFrame = 32;

bool is_frame(const StepContext& context, const FrameRow& row) {
  return row.cfa.is_at(Registers::sp_number(context.space.architecture())) && row.cfa.offset() >= kLeastFrame &&
         row.return_address.is(RegisterRule::kAtCfa) && row.return_address.offset() < 0;
}

// Has the call before `address` led to code that begins with a frame? `row` is that code's.
bool enters_frame(const StepContext& context, std::uint64_t address, const flow::CodeSource& source, FrameRow& row) {
  const Module* from = find_code(context.space, context.scratch, address - 1, false);
  if (from == nullptr || from->generated() || from->is_windows()) return false;
  const std::uint64_t target = flow::direct_call_target(source, address);
  const Module* to = target != 0 ? module_at(context.space, target) : nullptr;
  return to == from && to->row_at(target, row) && is_frame(context, row);
}

// The row of the frame at hand, whose return address is at `place`: `entered` with more room below.
FrameRow row_of(const StepContext& context, const FrameRow& entered, std::uint64_t place) {
  const Architecture architecture = context.space.architecture();
  const RegisterNumber sp = Registers::sp_number(architecture);
  FrameRow row = entered;
  const std::uint64_t cfa = place - static_cast<std::uint64_t>(std::int64_t{entered.return_address.offset()});
  row.cfa = CfaRule::at(sp, static_cast<std::int32_t>(cfa - context.frame.registers.sp()));
  lose_unsaved(row, architecture);  // the trace may use them
  return row;
}

// The frame whose return address is the innermost one that counts.
bool search(const StepContext& context, const flow::CodeSource& source, Step& step) {
  const Registers& registers = context.frame.registers;
  flow::Budget& budget = flow::budget_of(*context.scratch.synthesis);
  for (std::size_t i = 0; i < kMostStackWords; ++i) {
    const std::uint64_t place = registers.sp() + i * sizeof(std::uint64_t);
    std::uint64_t address;
    FrameRow entered;
    if (!budget.spend(1) || !context.space.memory().read(place, &address, sizeof address)) return false;
    if (!enters_frame(context, address, source, entered)) continue;
    const FrameRow row = row_of(context, entered, place);
    if (row.cfa.offset() < entered.cfa.offset()) return false;  // the frame is not made yet
    Step trial;
    apply_row(context, row, FrameOrigin::kSynthesis, trial);
    if (!accept(context, trial) || !trial.status.ok()) return false;
    trial.certainty = FrameCertainty::kChecked;
    step = trial;
    return true;
  }
  return false;
}

// The frame that the row gives, if a call into the described code has made it.
bool by_its_row(const StepContext& context, const FrameRow& row, const flow::CodeSource& source, Step& step) {
  Step trial;
  apply_row(context, row, FrameOrigin::kCfi, trial);
  if (!trial.status.ok() || !accept(context, trial)) return false;
  const std::uint64_t address = trial.caller.pc().value();
  const std::uint64_t target = flow::direct_call_target(source, address);
  const bool called = target != 0 ? target >= row.begin && target < row.end
                                  : flow::may_be_return_address(source, address);  // an indirect call
  if (called) step = trial;
  return called;
}

// A helper of the traces, which they call: it has no frame.
bool by_call_of_trace(const StepContext& context, Step& step) {
  std::uint64_t address;
  if (context.frame.pc().is_return_address() ||
      !context.space.memory().read(context.frame.registers.sp(), &address, sizeof address))
    return false;
  const Module* from = find_code(context.space, context.scratch, address - 1, false);
  if (from == nullptr || !from->generated() || from->is_exact()) return false;
  FrameRow row;
  row.cfa = CfaRule::at(Registers::sp_number(context.space.architecture()), sizeof address);
  row.return_address = RegisterRule::at_cfa(-static_cast<std::int32_t>(sizeof address));
  Step trial;
  apply_row(context, row, FrameOrigin::kSynthesis, trial);
  if (!trial.status.ok() || !accept(context, trial)) return false;
  trial.certainty = FrameCertainty::kChecked;
  step = trial;
  return true;
}

bool can_be_entered(const StepContext& context) {
  return context.frame.registers.has_sp() && context.space.architecture() != Architecture::kI386;
}

}  // namespace

bool begins_with_frame(const StepContext& context, const FrameRow& row) {
  if (!is_frame(context, row) || context.in_generated_code() || context.module->is_windows()) return false;
  const auto function = context.module->function_at(context.frame.pc().lookup());
  return function && function->begin == row.begin;
}

bool row_inside_function(const StepContext& context, std::uint64_t address, FrameRow& row) {
  const Module* to = find_code(context.space, context.scratch, address, false);
  if (to == nullptr || to->generated() || to->is_windows()) return false;
  const auto function = to->function_at(address);
  FrameRow entry;
  return function && function->begin < address && address < function->end && to->row_at(address, row) &&
         to->row_at(function->begin, entry) && !is_frame(context, entry) && row.cfa != entry.cfa;
}

bool by_described_entry(const StepContext& context, const FrameRow& row, Step& step) {
  return can_be_entered(context) && with_code(context, [&](const flow::CodeSource& source) {
           return by_its_row(context, row, source, step) || by_call_of_trace(context, step) ||
                  search(context, source, step);
         });
}

bool by_entered_frame(const StepContext& context, Step& step) {
  return context.in_generated_code() && can_be_entered(context) &&
         with_code(context, [&](const flow::CodeSource& source) { return search(context, source, step); });
}

}  // namespace windlass::walk
