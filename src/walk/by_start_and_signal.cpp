// Frames that no call made: where the kernel starts a process, and where it comes back from a signal handler.
#include "arch/aarch64_signal_frame.h"
#include "walk/step_context.h"

namespace windlass::walk {

// ---- the way back from a signal handler, AArch64 ------------------------------------------------------------------

// Whatever unwind information says of it: the kernel's vdso leads past the interrupted instruction.
bool by_signal_trampoline(const StepContext& context, Step& step) {
  const std::uint64_t pc = context.frame.pc().value();
  if (!context.frame.registers.has_sp() || !at_signal_trampoline(context.space, pc)) return false;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return context.space.memory().read(address, to, size);
  };
  FrameRow row;
  aarch64::signal_frame_row(pc, aarch64::has_vector_record(read, context.frame.sp()), row);
  apply_row(context, row, FrameOrigin::kSynthesis, step);
  return true;
}

void correct_first_pc(const AddressSpace& space, Registers& registers) {
  constexpr RegisterNumber kX8 = 8;
  constexpr std::uint64_t kInstruction = 4;
  const CodeAddress pc = registers.pc();
  if (registers.architecture() != Architecture::kAArch64 || pc.is_return_address() || !registers.has(kX8) ||
      registers.get(kX8) != aarch64::kRtSigreturn)
    return;
  if (at_signal_trampoline(space, pc.value() - kInstruction) && !at_signal_trampoline(space, pc.value()))
    registers.set_pc(CodeAddress::instruction(pc.value() - kInstruction));
}

// ---- the process's first instructions -----------------------------------------------------------------------------

namespace {

// sp is where the kernel left it: at argc, argv's pointers and the null behind them (psABI figure 3.9).
bool at_arguments(const StepContext& context) {
  constexpr std::uint64_t kMostArguments = 1 << 20, kMostBytes = std::uint64_t{64} << 20;
  if (!context.frame.registers.has_sp()) return false;
  const std::uint64_t sp = context.frame.sp();
  const Memory& memory = context.space.memory();
  std::uint64_t begin[2] = {};  // argc, argv[0]
  std::uint64_t end = 1;        // argv[argc]
  if (sp % 16 != 0 || !memory.read(sp, begin, sizeof begin)) return false;
  if (begin[0] == 0 || begin[0] > kMostArguments || begin[1] <= sp || begin[1] - sp > kMostBytes) return false;
  return memory.read(sp + 8 * (begin[0] + 1), &end, sizeof end) && end == 0;
}

// The kernel has cleared all registers, and a frame pointer of 0 marks the outermost frame (psABI 3.4.1, AAPCS64
// 6.4.6).
bool at_entry_point(const StepContext& context) {
  constexpr std::uint64_t kStartSize = 80;
  const Registers& registers = context.frame.registers;
  const RegisterNumber fp = Registers::fp_number(registers.architecture());
  const std::uint64_t entry = context.module->entry_point();
  return entry != 0 && !context.frame.pc().is_return_address() && context.frame.pc().value() - entry < kStartSize &&
         registers.has(fp) && registers.get(fp) == 0;
}

}  // namespace

// The dynamic linker starts a process with code that never returns and has no unwind information (_start,
// _dl_start_user).
bool by_process_start(const StepContext& context, Step& step) {
  if (!at_entry_point(context) && !at_arguments(context)) return false;
  step.status = {WalkEnd::kComplete, {}};
  return true;
}

}  // namespace windlass::walk
