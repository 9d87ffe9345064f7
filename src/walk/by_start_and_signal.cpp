// Frames that no call made: where the kernel starts a process, and where it comes back from a signal handler.
#include <algorithm>
#include <optional>

#include "base/aarch64_signal_frame.h"
#include "base/x86_signal_return.h"
#include "walk/step_context.h"

namespace windlass::walk {

// ---- the way back from a signal handler ---------------------------------------------------------------------------

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
  step.certainty = FrameCertainty::kDescribed;  // the kernel's frame has one form
  return true;
}

namespace {

// Are the registers those of a thread in sigreturn? The kernel has its pc behind the system call. x86: the result of a
// call that is under way is -ENOSYS (arch/x86/entry).
bool in_sigreturn(const AddressSpace& space, const Registers& registers) {
  constexpr std::uint64_t kNoSys = 38;
  constexpr RegisterNumber kX8 = 8;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_code(space, address, to, size);
  };
  const std::uint64_t pc = registers.pc().value();
  const auto holds = [&](RegisterNumber reg, std::uint64_t value) {
    return registers.has(reg) && registers.get(reg) == value;
  };
  switch (registers.architecture()) {
    case Architecture::kAArch64:
      return holds(kX8, aarch64::kRtSigreturn) && at_signal_trampoline(space, pc - aarch64::kSystemCallSize) &&
             !at_signal_trampoline(space, pc);
    case Architecture::kX86_64:
      return holds(x86_64::kRax, -kNoSys) && x86::behind_signal_return(read, Architecture::kX86_64, pc);
    case Architecture::kI386:
      return holds(i386::kEax, static_cast<std::uint32_t>(-kNoSys)) &&
             x86::behind_signal_return(read, Architecture::kI386, pc);
  }
  return false;
}

}  // namespace

void correct_first_pc(const AddressSpace& space, Registers& registers) {
  const CodeAddress pc = registers.pc();
  if (pc.is_return_address() || !in_sigreturn(space, registers)) return;
  const std::uint64_t call =
      registers.architecture() == Architecture::kAArch64 ? aarch64::kSystemCallSize : x86::kSystemCallSize;
  registers.set_pc(CodeAddress::instruction(pc.value() - call));
}

// ---- the process's first instructions -----------------------------------------------------------------------------

namespace {

// sp is where the kernel left it: at argc, argv's pointers, the null behind them and the environment's (psABI figure
// 3.9). All their strings lie above in this order.
bool at_arguments(const StepContext& context) {
  constexpr std::uint64_t kMostArguments = 1 << 20, kMostBytes = std::uint64_t{64} << 20;
  constexpr unsigned kAsked = 16;  // of the pointers
  const unsigned word = Registers::word_size(context.space.architecture());
  if (!context.frame.registers.has_sp() || context.frame.registers.sp() % 16 != 0) return false;
  const std::uint64_t sp = context.frame.registers.sp();
  const auto word_at = [&](std::uint64_t index) {
    std::uint64_t value = 0;
    return context.space.memory().read(sp + word * index, &value, word) ? std::optional(value) : std::nullopt;
  };
  const auto count = word_at(0);
  if (!count || *count == 0 || *count > kMostArguments || word_at(*count + 1) != 0) return false;
  std::uint64_t last = sp + word * (*count + 2);
  for (std::uint64_t i = 1; i <= std::min<std::uint64_t>(*count, kAsked); ++i) {
    const auto string = word_at(i);
    if (!string || *string <= last || *string - sp > kMostBytes) return false;
    last = *string;
  }
  const auto environment = word_at(*count + 2);
  return environment && (*environment == 0 || (*environment > last && *environment - sp <= kMostBytes));
}

// The kernel has cleared all registers, and a frame pointer of 0 marks the outermost frame (psABI 3.4.1, AAPCS64
// 6.4.6). What these instructions call returns to them; elsewhere than on i386 the code itself says so.
bool at_entry_point(const StepContext& context) {
  constexpr std::uint64_t kStartSize = 80;
  const Registers& registers = context.frame.registers;
  const CodeAddress pc = context.frame.pc();
  const RegisterNumber fp = Registers::fp_number(registers.architecture());
  const std::uint64_t entry = context.module->entry_point();
  if (pc.is_return_address() && registers.architecture() != Architecture::kI386) return false;
  return entry != 0 && pc.lookup() - entry < kStartSize && registers.has(fp) && registers.get(fp) == 0;
}

}  // namespace

// The dynamic linker starts a process with code that never returns and has no unwind information (_start,
// _dl_start_user).
bool by_process_start(const StepContext& context, Step& step) {
  if (!at_entry_point(context)) return by_arguments(context, step);
  step.status = {WalkEnd::kComplete, {}};
  return true;
}

bool by_arguments(const StepContext& context, Step& step) {
  if (!at_arguments(context)) return false;
  step.status = {WalkEnd::kComplete, {}};
  return true;
}

}  // namespace windlass::walk
