#include "walk/unwinders.h"

#include "arch/aarch64_signal_frame.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

constexpr std::uint64_t kMaxFrameSize = std::uint64_t{1} << 30;

// ---- the way back from a signal handler, AArch64 ------------------------------------------------------------------

// Whatever unwind information says of it: the kernel's vdso leads past the interrupted instruction.
bool by_signal_trampoline(const StepContext& context, Step& step) {
  const std::uint64_t pc = context.frame.pc().value();
  if (!at_signal_trampoline(context.space, pc)) return false;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return context.space.memory().read(address, to, size);
  };
  FrameRow row;
  aarch64::signal_frame_row(pc, aarch64::has_vector_record(read, context.frame.sp()), row);
  apply_row(context, row, FrameOrigin::kSynthesis, step);
  return true;
}

// ---- the code -----------------------------------------------------------------------------------------------------

}  // namespace

// A function of Windows that has not moved sp has all that it must preserve.
static void keep_windows_registers(FrameRow& row) {
  for (const RegisterNumber reg : {x86_64::kRsi, x86_64::kRdi})
    (void)row.registers.set(reg, RegisterRule::same_value());
}

static bool is_leaf_row(const FrameRow& row) { return row.cfa == CfaRule::at(x86_64::kRsp, 8); }

bool by_synthesis(const StepContext& context, Step& step) {
  if (context.module == nullptr || !context.options.synthesize) return false;
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
  if (found->outermost)
    trial.status = {WalkEnd::kComplete, {}};
  else
    apply_row(context, found->row, FrameOrigin::kSynthesis, trial);
  if (!accept(context.space, trial)) return false;
  step = trial;
  return true;
}

namespace {

// ---- call frame information ---------------------------------------------------------------------------------------

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
  if (!step.status.ok() || !accept(context.space, step)) return false;
  if (context.frame.pc().value() == row.begin) return true;  // none has been written
  for (const RegisterEntry entry : row.registers)
    if (entry.reg != sp && frame.get(entry.reg) == installed.caller.get(entry.reg)) step.caller.forget(entry.reg);
  return true;
}

// Where both agree about the frame, unwind information knows a register better than code that gives it back from
// another register or not at all: helpers with calling conventions of their own, swapcontext's way out by an error.
void keep_known(const Step& by_row, const FrameRow& code_row, Step& by_code) {
  if (!by_row.status.ok() || !by_code.status.ok() || by_row.caller.sp() != by_code.caller.sp() ||
      by_row.caller.pc() != by_code.caller.pc())
    return;
  by_row.caller.for_each([&](RegisterNumber reg, std::uint64_t value) {
    const RegisterRule* rule = code_row.registers.find(reg);
    if (by_code.caller.has(reg) && (rule == nullptr || !rule->is(RegisterRule::kInRegister))) return;
    by_code.caller.set(reg, value);
    by_code.saved.set(by_code.caller, reg, by_row.saved.at(by_row.caller, reg));
  });
}

// Does the code say otherwise than the row, which led to `step`? Compilers' unwind information is right at calls, but
// seldom throughout epilogues, and hand-written code's may lack pushes.
bool by_contradiction(const StepContext& context, const FrameRow& row, Step& step) {
  if (!context.options.synthesize) return false;
  const auto other = with_code(context, [&](const code::CodeSource& source) {
    return code::contradicts(row, source, context.frame.pc(), *context.scratch.synthesis);
  });
  if (!other) return false;
  Step trial;
  apply_row(context, *other, FrameOrigin::kSynthesis, trial);
  if (!accept(context.space, trial)) return false;
  keep_known(step, *other, trial);
  step = trial;
  return true;
}

}  // namespace

bool return_address_outside(const FrameRow& row) {
  return row.return_address.is(RegisterRule::kAtCfa) && row.return_address.offset() >= 0 && row.cfa.is_at(aarch64::kSp);
}

namespace {

bool by_cfi(const StepContext& context, Step& step) {
  if (context.module == nullptr) return false;
  const CodeAddress pc = context.frame.pc();
  FrameRow row;
  if (const auto found = context.module->row_at(pc.lookup(), row); !found) {
    if (found.error().code != ErrorCode::kNotFound) step.status = {WalkEnd::kBadRow, found.error()};
    return false;
  }
  if (row.signal_frame && by_signal_trampoline(context, step)) return true;
  const bool exact = !pc.is_return_address();
  if (exact && installs_context(row) && before_context(context, row, step)) return true;
  apply_row(context, row, FrameOrigin::kCfi, step);
  // An interrupted instruction may stand anywhere; a row that leads nowhere is wrong at a call, too.
  const bool accepted = accept(context.space, step);
  if ((exact || !accepted || return_address_outside(row)) && by_contradiction(context, row, step)) return true;
  if (!accepted) (void)by_synthesis(context, step);  // else that is how the walk ends
  // What is decided for good: at a call, an accepted row is never asked of the code.
  if (!exact && accepted && step.status.ok() && !return_address_outside(row))
    context.scratch.rows.keep(context.module->id(), pc.value(), row, FrameOrigin::kCfi, context.space.architecture());
  return true;
}

// ---- the chain of frame pointers ----------------------------------------------------------------------------------

// x86-64: CFA = rbp + 16, [rbp] = the caller's rbp, [rbp + 8] = the return address.
// AArch64: [x29] = the caller's x29, [x29 + 8] = the return address (AAPCS64 section 6.4.6); sp is not told, and taken
// to be behind the pair.
bool by_frame_pointer(const StepContext& context, Step& step) {
  const AddressSpace& space = context.space;
  const Frame& frame = context.frame;
  const Registers& registers = frame.registers;
  const RegisterNumber fp_number = Registers::fp_number(registers.architecture());
  // From an instruction in a prologue it would skip a caller and still look right.
  if (!frame.pc().is_return_address() || !registers.has(fp_number)) return false;
  const std::uint64_t fp = registers.get(fp_number);
  if (fp == 0) {
    if (context.module->is_windows()) return false;
    step.status = {WalkEnd::kComplete, {}};  // psABI 3.4.1: the outermost frame is marked so
    return true;
  }
  std::uint64_t pair[2];
  if (fp % 8 != 0 || fp < registers.sp() || fp - registers.sp() > kMaxFrameSize ||
      !space.memory().read(fp, pair, sizeof pair))
    return false;
  if (registers.architecture() == Architecture::kAArch64) pair[1] &= ~space.pointer_mask();
  const CodeAddress pc = CodeAddress::return_address(pair[1]);
  const Module* module = pair[1] != 0 ? space.find(pc.lookup()) : nullptr;
  if (pair[1] != 0 && module == nullptr) return false;
  step.status = {};
  step.module = module;
  step.module_known = true;
  if (pair[1] == 0) step.status.end = WalkEnd::kComplete;
  step.caller = Registers(registers.architecture());
  step.caller.set(fp_number, pair[0]);
  step.caller.set_sp(fp + 16);
  step.caller.set_pc(pc);
  step.saved = frame.saved;
  step.saved.set(step.caller, fp_number, fp);
  step.saved.set(step.caller, Registers::pc_number(registers.architecture()), fp + 8);
  step.origin = FrameOrigin::kFramePointer;
  return true;
}

// ---- a leaf -------------------------------------------------------------------------------------------------------

}  // namespace

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

namespace {

// ---- the process's first instructions -----------------------------------------------------------------------------

// The dynamic linker starts a process with code that never returns and has no unwind information (_dl_start_user). Its
// sp is where the kernel left it: at argc, argv's pointers and the null behind them (psABI figure 3.9).
bool by_process_start(const StepContext& context, Step& step) {
  constexpr std::uint64_t kMostArguments = 1 << 20, kMostBytes = std::uint64_t{64} << 20;
  const std::uint64_t sp = context.frame.sp();
  const Memory& memory = context.space.memory();
  std::uint64_t begin[2] = {};  // argc, argv[0]
  std::uint64_t end = 1;        // argv[argc]
  if (context.module == nullptr || sp % 16 != 0 || !memory.read(sp, begin, sizeof begin)) return false;
  if (begin[0] == 0 || begin[0] > kMostArguments || begin[1] <= sp || begin[1] - sp > kMostBytes) return false;
  if (!memory.read(sp + 8 * (begin[0] + 1), &end, sizeof end) || end != 0) return false;
  step.status = {WalkEnd::kComplete, {}};
  return true;
}

}  // namespace

Scratch::Scratch() : synthesis(code::make_scratch()) {}
Scratch::~Scratch() { code::free_scratch(synthesis); }

void find_caller(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
                 Scratch& scratch, Step& step) {
  const StepContext context{space, frame, module, options, scratch};
  const bool windows = module != nullptr && module->is_windows();
  if (windows ? by_pdata(context, step) : by_cfi(context, step)) return;
  const StepStatus bad = step.status;  // damaged unwind information is worth more than "nothing knows this code"
  if (by_signal_trampoline(context, step)) return;
  if (by_synthesis(context, step)) return;
  if (module != nullptr && by_frame_pointer(context, step)) return;
  if (by_process_start(context, step) || by_leaf(context, step)) return;
  step.status = bad;
  if (module == nullptr)
    step.status = {WalkEnd::kNoModule, Error{ErrorCode::kNotFound, "pc lies in no module", frame.pc().value()}};
  else if (step.status.error.where == 0)
    step.status.error.where = frame.pc().value();
}

}  // namespace windlass::walk
