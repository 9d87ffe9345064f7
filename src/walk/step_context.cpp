#include "walk/step_context.h"

#include "base/aarch64_signal_frame.h"
#include "walk/code_answers.h"
#include "walk/inside.h"
#include "walk/own_modules.h"

namespace windlass::walk {

void apply_row(const StepContext& context, const FrameRow& row, FrameOrigin origin, Step& step) {
  const ApplyContext relative{
      .bias = context.module != nullptr ? context.module->info().bias : 0,
      .pac_mask = context.space.pointer_mask(),
      .slots_below_sp_are_dead = origin == FrameOrigin::kCfi,
      .fs_base = context.scratch.fs_base,
      .gs_base = context.scratch.gs_base,
      .jumps_to_register = context.module == nullptr || !context.module->is_exact(),
  };
  step.saved = context.frame.saved;
  step.status = apply(row, context.space.memory(), relative, context.frame.registers, step.caller, &step.saved);
  step.origin = origin;
  step.certainty = FrameCertainty::kGuessed;  // but by unwind information, until its unwinder knows better
  if (origin == FrameOrigin::kCfi || origin == FrameOrigin::kPdata) step.certainty = FrameCertainty::kDescribed;
  step.signal_frame = row.signal_frame;
  step.module_known = false;
  const std::uint64_t mask = row.return_signed ? 0 : context.space.unsigned_mask();
  if (mask == 0 || !step.status.ok()) return;
  const CodeAddress pc = step.caller.pc();
  const std::uint64_t plain = pc.value() & ~mask;
  step.caller.set_pc(pc.is_return_address() ? CodeAddress::return_address(plain) : CodeAddress::instruction(plain));
}

bool read_code(const AddressSpace& space, std::uint64_t address, void* to, std::size_t size) {
  const Memory& memory = space.memory();
  if (memory.read(address, to, size)) return true;
  const Module* module = module_at(space, address);
  return (module != nullptr && module->read_image(address, to, size)) || memory.read_code(address, to, size);
}

bool read_code(const StepContext& context, std::uint64_t address, void* to, std::size_t size) {
  if (context.scratch.undescribed.holds(address, size)) {
    copy_own(address, to, size);
    return true;
  }
  if (const Module* module = context.module; module != nullptr && module->is_own()) {
    const ModuleInfo& info = module->info();
    if (address - info.begin < info.end - info.begin && read_own_image(address, to, size)) return true;
  }
  return read_code(context.space, address, to, size);
}

bool at_signal_trampoline(const AddressSpace& space, std::uint64_t pc) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_code(space, address, to, size);
  };
  return space.architecture() == Architecture::kAArch64 && aarch64::at_signal_return(read, pc);
}

namespace {

bool in_known_code(const StepContext& context, Step& step, Trust trust) {
  const std::uint64_t at = step.caller.pc().lookup();
  const bool ask = trust == Trust::kFull || context.in_undescribed_code();
  if (step.find_module(context.space, context.scratch, ask) != nullptr) return true;
  if (trust == Trust::kFull && context.space.is_own_process() &&
      context.scratch.undescribed.ask(at, flow::budget_of(*context.scratch.synthesis)) == Executable::kUnknown)
    return true;
  return at_signal_trampoline(context.space, step.caller.pc().value());
}

}  // namespace

bool holds_stack(const StepContext& context, const Module& code) {
  const ModuleInfo& range = code.info();
  return context.lowest() - range.begin < range.end - range.begin;
}

bool in_what_is_written(const StepContext& context, const Step& step) {
  const std::uint64_t at = step.saved.at(step.caller, Registers::pc_number(step.caller.architecture()));
  return at - context.options.written_begin < context.options.written_end - context.options.written_begin;
}

bool accept(const StepContext& context, Step& step, Trust trust) {
  if (!step.status.ok()) return true;
  const std::uint64_t pc = step.caller.pc().value();
  const std::uint64_t sp = lowest_sp(context.frame.registers, step.caller);
  if (in_what_is_written(context, step))
    step.status = {WalkEnd::kBadRow, Error{ErrorCode::kMalformed, "return address in memory that the walk writes", pc}};
  else if (!in_known_code(context, step, trust) && !step.signal_frame)  // it may have jumped anywhere
    step.status = {WalkEnd::kNoModule, Error{ErrorCode::kNotFound, "return address lies in no known code", pc}};
  else if (!is_stack_address(context.space.architecture(), sp))
    step.status = {WalkEnd::kBadRow, Error{ErrorCode::kMalformed, "caller's sp is no stack address", pc, sp}};
  return step.status.ok();
}

bool believable(const StepContext& context, const FrameRow& row, Step& trial, const flow::CodeSource& source) {
  if (trial.status.end == WalkEnd::kComplete) return true;
  if (!trial.status.ok() || !accept(context, trial)) return false;
  if (row.signal_frame) return true;
  const Module* to = trial.find_module(context.space, context.scratch, context.in_undescribed_code());
  const bool foreign = to != nullptr && to->foreign_code(trial.caller.pc().lookup());  // other calls, not read here
  return !leads_to_other_stack(context, trial) &&
         (foreign || flow::may_be_return_address(source, trial.caller.pc().value()));
}

bool leads_to_other_stack(const StepContext& context, const Step& trial) {
  return trial.status.ok() && lowest_sp(context.frame.registers, trial.caller) - context.lowest() > kMaxFrameSize;
}

bool returns_to_other_stack(const StepContext& context, const FrameRow& row, Step& trial,
                            const flow::CodeSource& source) {
  const Frame& frame = context.frame;
  const Architecture architecture = frame.registers.architecture();
  const auto word = static_cast<std::int32_t>(Registers::word_size(architecture));
  const RegisterNumber fp = Registers::fp_number(architecture);
  const bool by_record = architecture == Architecture::kX86_64 && frame.pc().is_return_address() &&
                         frame.origin == FrameOrigin::kCfi && frame.certainty == FrameCertainty::kDescribed &&
                         row.cfa == CfaRule::at(fp, 2 * word) && row.return_address == RegisterRule::at_cfa(-word);
  if (!by_record || context.in_generated_code() || !leads_to_other_stack(context, trial)) return false;
  const Module* to = trial.find_module(context.space, context.scratch, false);
  return accept(context, trial) && to == context.module &&
         lowest_sp(frame.registers, trial.caller) > context.lowest() &&
         flow::may_be_return_address(source, trial.caller.pc().value());
}

namespace {

// Is the frame record at `at` where a caller's frame pointer and pc were saved?
bool are_in_record(const SavedLocations& saved, const Registers& caller, std::uint64_t at) {
  const Architecture architecture = caller.architecture();
  return saved.at(caller, Registers::fp_number(architecture)) == at &&
         saved.at(caller, Registers::pc_number(architecture)) == at + Registers::word_size(architecture);
}

// Has the frame pointer led to the caller, whose own one lies above it or is 0, the mark of the outermost frame?
bool by_frame_record(const StepContext& context, const Step& step) {
  const Registers& callee = context.frame.registers;
  const Registers& caller = step.caller;
  const Architecture architecture = callee.architecture();
  const RegisterNumber fp = Registers::fp_number(architecture);
  if (!callee.has(fp) || !caller.has(fp) || callee.get(fp) < context.lowest()) return false;
  const std::uint64_t at = callee.get(fp), next = caller.get(fp);
  const bool goes_up = next > at && next - at <= kMaxFrameSize && is_stack_address(architecture, next);
  return are_in_record(step.saved, caller, at) && (next == 0 || goes_up);
}

// A frame pointer of 0 marks the outermost frame (psABI 3.4.1). In code without unwind information, to which a frame
// record has led: elsewhere the register may hold anything.
bool is_end_of_chain(const StepContext& context) {
  const Frame& frame = context.frame;
  const Registers& registers = frame.registers;
  const RegisterNumber fp = Registers::fp_number(registers.architecture());
  const std::uint64_t saved_at = frame.saved.at(registers, fp);
  return frame.pc().is_return_address() &&
         (frame.certainty == FrameCertainty::kChained || frame.origin == FrameOrigin::kFramePointer) &&
         registers.has(fp) && registers.get(fp) == 0 && saved_at != 0 &&
         are_in_record(frame.saved, registers, saved_at);
}

// Does the way in from the call lead to the caller? It knows nothing of arguments that the function takes off: where
// its frame record is the one that has led to the caller, sp need not be the same, and is not known.
bool is_way_in(const StepContext& context, const FrameRow& way_in, Step& step) {
  const Registers& callee = context.frame.registers;
  const RegisterNumber fp = Registers::fp_number(callee.architecture());
  const RegisterNumber pc = Registers::pc_number(callee.architecture());
  Step in;
  apply_row(context, way_in, FrameOrigin::kSynthesis, in);
  if (!in.status.ok() || in.caller.pc() != step.caller.pc()) return false;
  const bool same_place = in.saved.at(in.caller, pc) == step.saved.at(step.caller, pc);
  // Both may have the register where it was.
  if (in.caller.has(fp) && step.caller.has(fp) && in.caller.get(fp) != step.caller.get(fp)) return false;
  if (!step.caller.has_sp() && same_place) return true;
  if (step.caller.has_sp() && in.caller.sp() == step.caller.sp()) return true;
  const auto by_record = [&](const Step& found) { return are_in_record(found.saved, found.caller, callee.get(fp)); };
  if (!callee.has(fp) || !by_record(in) || !by_record(step)) return false;
  step.caller.forget(Registers::sp_number(callee.architecture()));
  return true;
}

}  // namespace

FrameCertainty by_call_site(const StepContext& context, Step& step, bool follows_code) {
  CallCheck check;
  return by_call_site(context, step, follows_code, check);
}

FrameCertainty by_call_site(const StepContext& context, Step& step, bool follows_code, CallCheck& check) {
  const flow::CallSite site = check.site = call_site(context, step.caller.pc(), check.way_in);
  const bool may_fit =
      site == flow::CallSite::kAnywhere || site == flow::CallSite::kConstantLeads || site == flow::CallSite::kMayLead;
  check.is_way_in = flow::has_way_in(site) && is_way_in(context, check.way_in, step);
  if (site == flow::CallSite::kReaches || (follows_code && may_fit) || check.is_way_in) return FrameCertainty::kChecked;
  const bool says_otherwise = site == flow::CallSite::kNone || site == flow::CallSite::kLeads;
  return !says_otherwise && by_frame_record(context, step) ? FrameCertainty::kChained : FrameCertainty::kGuessed;
}

StepStatus guessed_end(const StepContext& context) {
  if (is_end_of_chain(context))
    return {WalkEnd::kChained,
            Error{ErrorCode::kNotFound, "a frame pointer of 0 alone says that this is the outermost frame",
                  context.frame.pc().value()}};
  return {WalkEnd::kGuessed,
          Error{ErrorCode::kNotFound, "nothing proves that this is the outermost frame", context.frame.pc().value()}};
}

void lose_unsaved(FrameRow& row, Architecture architecture) {
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) {
    const RegisterNumber reg = Registers::number_of(architecture, slot);
    if (is_callee_saved(architecture, reg) && row.registers.find(reg) == nullptr)
      (void)row.registers.set(reg, RegisterRule::undefined());
  }
}

}  // namespace windlass::walk
