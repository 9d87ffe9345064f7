#include "walk/step_context.h"

#include "arch/aarch64_signal_frame.h"

namespace windlass::walk {

void apply_row(const StepContext& context, const FrameRow& row, FrameOrigin origin, Step& step) {
  const ApplyContext relative{context.module != nullptr ? context.module->info().bias : 0, context.space.pointer_mask(),
                              origin == FrameOrigin::kCfi};
  step.saved = context.frame.saved;
  step.status = apply(row, context.space.memory(), relative, context.frame.registers, step.caller, &step.saved);
  step.origin = origin;
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

bool at_signal_trampoline(const AddressSpace& space, std::uint64_t pc) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_code(space, address, to, size);
  };
  return space.architecture() == Architecture::kAArch64 && aarch64::at_signal_return(read, pc);
}

bool accept(const StepContext& context, Step& step) {
  if (!step.status.ok()) return true;
  const std::uint64_t pc = step.caller.pc().value();
  const std::uint64_t sp = lowest_sp(context.frame.registers, step.caller);
  if (step.find_module(context.space) == nullptr && !at_signal_trampoline(context.space, pc))
    step.status = {WalkEnd::kNoModule, Error{ErrorCode::kNotFound, "return address lies in no known code", pc}};
  else if (!is_stack_address(sp))
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

StepStatus guessed_end(const StepContext& context) {
  return {WalkEnd::kGuessed,
          Error{ErrorCode::kNotFound, "nothing proves that this is the outermost frame", context.frame.pc().value()}};
}

}  // namespace windlass::walk
