#include "walk/step_context.h"

#include "arch/aarch64_signal_frame.h"
#include "walk/own_modules.h"

namespace windlass::walk {

void apply_row(const StepContext& context, const FrameRow& row, FrameOrigin origin, Step& step) {
  const ApplyContext relative{
      .bias = context.module != nullptr ? context.module->info().bias : 0,
      .pac_mask = context.space.pointer_mask(),
      .slots_below_sp_are_dead = origin == FrameOrigin::kCfi,
      .fs_base = context.scratch.fs_base,
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
  const Module* module = space.find(address);
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
      context.scratch.undescribed.ask(at) == Executable::kUnknown)
    return true;
  return at_signal_trampoline(context.space, step.caller.pc().value());
}

}  // namespace

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

bool believable(const StepContext& context, const FrameRow& row, Step& trial, const code::CodeSource& source) {
  if (trial.status.end == WalkEnd::kComplete) return true;
  if (!trial.status.ok() || !accept(context, trial)) return false;
  if (row.signal_frame) return true;
  const std::uint64_t moved = lowest_sp(context.frame.registers, trial.caller) - context.lowest();
  return moved <= kMaxFrameSize && code::may_be_return_address(source, trial.caller.pc().value());
}

FrameCertainty by_call_site(const StepContext& context, const Step& step, bool follows_code) {
  FrameRow way_in;
  const code::CallSite site = followed_call(context, step.caller.pc(), way_in);
  const bool may_fit = site == code::CallSite::kAnywhere || site == code::CallSite::kMayLead;
  bool fits = site == code::CallSite::kReaches || (follows_code && may_fit);
  if (site == code::CallSite::kLeads && context.frame.registers.has_sp()) {
    Step in;
    apply_row(context, way_in, FrameOrigin::kSynthesis, in);
    fits = in.status.ok() && in.caller.pc() == step.caller.pc() &&
           (!step.caller.has_sp() || in.caller.sp() == step.caller.sp());
  }
  return fits ? FrameCertainty::kChecked : FrameCertainty::kGuessed;
}

StepStatus guessed_end(const StepContext& context) {
  return {WalkEnd::kGuessed,
          Error{ErrorCode::kNotFound, "nothing proves that this is the outermost frame", context.frame.pc().value()}};
}

}  // namespace windlass::walk
