#include "walk/unwinders.h"

#include <optional>

namespace windlass::walk {
namespace {

constexpr std::uint64_t kMaxFrameSize = std::uint64_t{1} << 30;

ApplyContext context_of(const AddressSpace& space, const Module* module) {
  return {module != nullptr ? module->info().bias : 0, space.pointer_mask(), true};
}

void apply_row(const AddressSpace& space, const Frame& frame, const Module* module, const FrameRow& row,
               FrameOrigin origin, Step& step) {
  step.saved = frame.saved;
  step.status = apply(row, space.memory(), context_of(space, module), frame.registers, step.caller, &step.saved);
  step.origin = origin;
  step.signal_frame = row.signal_frame;
}

// The code's own bytes: the process's memory, or, where a dump left them out, the module's file.
bool read_code(const AddressSpace& space, std::uint64_t address, void* to, std::size_t size) {
  if (space.memory().read(address, to, size)) return true;
  const Module* module = space.find(address);
  return module != nullptr && module->read_image(address, to, size);
}

// ---- code, as its analysis sees it --------------------------------------------------------------------------------

// Can `trial` be the caller that code says it is? Behind a call, at the start of what nobody calls (a signal
// trampoline, makecontext's), and higher on the stack.
bool believable(const Frame& frame, const FrameRow& row, const Step& trial, const code::CodeSource& source) {
  if (trial.status.end == WalkEnd::kComplete) return true;
  if (!trial.status.ok()) return false;
  if (row.signal_frame) return source.kind(trial.caller.pc().lookup()) != code::CodeKind::kNoCode;
  return trial.caller.sp() >= frame.sp() && code::may_be_return_address(source, trial.caller.pc().value());
}

// Calls callback(CodeSource) for code seen from a frame.
template <typename Callback>
void with_code(const AddressSpace& space, const Frame& frame, const Module& module, Callback&& callback) {
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_code(space, address, to, size);
  };
  const auto kind = [&](std::uint64_t address) {
    const Module* at = space.find(address);
    if (at == nullptr) return code::CodeKind::kNoCode;
    return at->generated() ? code::CodeKind::kGenerated : code::CodeKind::kFile;
  };
  const auto function_start = [&](std::uint64_t address) {
    const Module* at = space.find(address);
    return at != nullptr ? at->function_start(address) : 0;
  };
  const code::CodeSource* self = nullptr;
  const auto plausible = [&](const FrameRow& row) {
    Step trial;
    apply_row(space, frame, &module, row, FrameOrigin::kSynthesis, trial);
    return believable(frame, row, trial, *self);
  };
  const code::CodeSource source{space.architecture(), read, kind, plausible, function_start, module.entry_point()};
  self = &source;
  callback(source);
}

// ---- call frame information ---------------------------------------------------------------------------------------

bool by_cfi(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
            Scratch& scratch, Step& step) {
  if (module == nullptr) return false;
  const auto row = module->row_at(frame.pc().lookup());
  if (!row) {
    if (row.error().code != ErrorCode::kNotFound) step.status = {WalkEnd::kBadRow, row.error()};
    return false;
  }
  if (options.synthesize) {
    std::optional<FrameRow> better;
    with_code(space, frame, *module, [&](const code::CodeSource& source) {
      better = code::contradicts(*row, source, frame.pc(), *scratch.synthesis);
    });
    if (better) {
      apply_row(space, frame, module, *better, FrameOrigin::kSynthesis, step);
      return true;
    }
  }
  apply_row(space, frame, module, *row, FrameOrigin::kCfi, step);
  return true;
}

// ---- the code -----------------------------------------------------------------------------------------------------

bool by_synthesis(const AddressSpace& space, const Frame& frame, const Module* module, Scratch& scratch, Step& step) {
  if (module == nullptr) return false;
  Expected<code::Synthesis> found = fail(ErrorCode::kNotFound, "", 0);
  with_code(space, frame, *module,
            [&](const code::CodeSource& source) { found = code::synthesize(source, frame.pc(), *scratch.synthesis); });
  if (!found) return false;
  if (found->outermost) {
    step.status = {WalkEnd::kComplete, {}};
    return true;
  }
  apply_row(space, frame, module, found->row, FrameOrigin::kSynthesis, step);
  return true;
}

// ---- the chain of frame pointers ----------------------------------------------------------------------------------

// x86-64: CFA = rbp + 16, [rbp] = the caller's rbp, [rbp + 8] = the return address.
// AArch64: [x29] = the caller's x29, [x29 + 8] = the return address (AAPCS64 section 6.4.6); sp is not told, and taken
// to be behind the pair.
bool by_frame_pointer(const AddressSpace& space, const Frame& frame, Step& step) {
  const Registers& registers = frame.registers;
  const RegisterNumber fp_number = Registers::fp_number(registers.architecture());
  // From an instruction in a prologue it would skip a caller and still look right.
  if (!frame.pc().is_return_address() || !registers.has(fp_number)) return false;
  const std::uint64_t fp = registers.get(fp_number);
  if (fp == 0) {
    step.status = {WalkEnd::kComplete, {}};  // psABI 3.4.1: the outermost frame is marked so
    return true;
  }
  std::uint64_t pair[2];
  if (fp % 8 != 0 || fp < registers.sp() || fp - registers.sp() > kMaxFrameSize ||
      !space.memory().read(fp, pair, sizeof pair))
    return false;
  if (registers.architecture() == Architecture::kAArch64) pair[1] &= ~space.pointer_mask();
  if (pair[1] != 0 && space.find(pair[1] - 1) == nullptr) return false;
  step.status = {};
  if (pair[1] == 0) step.status.end = WalkEnd::kComplete;
  step.caller = Registers(registers.architecture());
  step.caller.set(fp_number, pair[0]);
  step.caller.set_sp(fp + 16);
  step.caller.set_pc(CodeAddress::return_address(pair[1]));
  step.saved = frame.saved;
  step.saved.set(step.caller, fp_number, fp);
  step.saved.set(step.caller, Registers::pc_number(registers.architecture()), fp + 8);
  step.origin = FrameOrigin::kFramePointer;
  return true;
}

// ---- a leaf -------------------------------------------------------------------------------------------------------

// An interrupted instruction in code that nothing else knows: a jump through a bad pointer, say. The caller is still
// where the call put it.
bool by_leaf(const AddressSpace& space, const Frame& frame, Step& step) {
  if (frame.pc().is_return_address()) return false;
  FrameRow row;
  const Architecture architecture = space.architecture();
  if (architecture == Architecture::kX86_64) {
    row.cfa = CfaRegister{Registers::sp_number(architecture), 8};
    row.return_address = AtCfa{-8};
  } else {
    row.cfa = CfaRegister{Registers::sp_number(architecture), 0};
    row.return_address = InRegister{aarch64::kX30};
  }
  Step trial;
  apply_row(space, frame, nullptr, row, FrameOrigin::kLeaf, trial);
  if (!trial.status.ok() || space.find(trial.caller.pc().lookup()) == nullptr) return false;
  step = trial;
  return true;
}

}  // namespace

Scratch::Scratch() : synthesis(code::make_scratch()) {}
Scratch::~Scratch() { code::free_scratch(synthesis); }

void find_caller(const AddressSpace& space, const Frame& frame, const WalkOptions& options, Scratch& scratch,
                 Step& step) {
  const Module* module = space.find(frame.pc().lookup());
  if (by_cfi(space, frame, module, options, scratch, step)) return;
  const StepStatus bad = step.status;  // damaged unwind information is worth more than "nothing knows this code"
  if (options.synthesize && by_synthesis(space, frame, module, scratch, step)) return;
  if (module != nullptr && by_frame_pointer(space, frame, step)) return;
  if (by_leaf(space, frame, step)) return;
  step.status = bad;
  if (module == nullptr)
    step.status = {WalkEnd::kNoModule, Error{ErrorCode::kNotFound, "pc lies in no module", frame.pc().value()}};
  else if (step.status.error.where == 0)
    step.status.error.where = frame.pc().value();
}

}  // namespace windlass::walk
