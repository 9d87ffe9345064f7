// The code itself: followed to where it returns, or taken for a leaf.
#include <cstring>
#include <span>

#include "flow/stack_effect.h"
#include "walk/code_answers.h"
#include "walk/code_memo.h"
#include "walk/steady_step.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

// A function of Windows that has not moved sp has all that it must preserve.
void keep_windows_registers(FrameRow& row) {
  for (const RegisterNumber reg : {x86_64::kRsi, x86_64::kRdi})
    (void)row.registers.set(reg, RegisterRule::same_value());
}

bool begins_function(const Module& module, std::uint64_t address) {
  if (module.function_start(address) == address) return true;
  const auto function = module.function_at(address);
  return function && function->begin == address;
}

// No call leads back there: the return address was put into a register or onto the stack.
bool returns_to_beginning(const StepContext& context) {
  const CodeAddress pc = context.frame.pc();
  return pc.is_return_address() && begins_function(*context.module, pc.value());
}

bool frame_pointer_is_clear(const Registers& registers) {
  const RegisterNumber fp = Registers::fp_number(registers.architecture());
  return registers.has(fp) && registers.get(fp) == 0;
}

// Where AArch64's makecontext() lets its function return to. x29 is clear there (AAPCS64 6.4.6), the link register is
// not: the code seems to be its own caller.
bool begins_context(const StepContext& context) {
  return context.space.architecture() == Architecture::kAArch64 && returns_to_beginning(context) &&
         frame_pointer_is_clear(context.frame.registers);
}

bool is_leaf_row(const FrameRow& row) { return row.cfa == CfaRule::at(x86_64::kRsp, 8); }

bool returns_behind_no_call(const StepContext& context) {
  const CodeAddress pc = context.frame.pc();
  return pc.is_return_address() && !with_code(context, [pc](const flow::CodeSource& source) {
           return flow::may_be_return_address(source, pc.value());
         });
}

// Code that never returns has no caller in two cases. It is the place where the program starts. Or it was put on a
// fresh stack: the return address that leads there was left by no call. That address is the begin of a function
// (glibc's makecontext), or stands behind an instruction that is no call (Boost.Context's make_fcontext).
//
// Elsewhere, such code may be any function that does not return. One exception: it halts at once, and the frame pointer
// marks the end. Start routines clear the frame pointer (psABI 3.4.1, AAPCS64 6.4.6).
bool starts_stack(const StepContext& context, flow::Start start) {
  return start == flow::Start::kEntryPoint || returns_to_beginning(context) || returns_behind_no_call(context) ||
         (start == flow::Start::kHalts && frame_pointer_is_clear(context.frame.registers));
}

// AArch64's mark of the outermost frame: start routines clear x29 and x30, so that the frame record made of them is
// zero (AAPCS64 6.4.6). The code was followed to what it returns by, or says itself that the record is where x29
// points.
bool is_marked(const StepContext& context, const flow::Synthesis& found) {
  const Registers& registers = context.frame.registers;
  if (registers.architecture() != Architecture::kAArch64 || !registers.has(aarch64::kX29)) return false;
  const std::uint64_t fp = registers.get(aarch64::kX29);
  const bool followed = !found.by_jump && found.certainty != flow::Certainty::kGuess;
  if (found.row.return_address.is(RegisterRule::kInRegister)) return followed && fp == 0;
  std::uint64_t record[2] = {1, 1};
  const CfaRule& cfa = found.row.cfa;
  const bool in_record =
      cfa.is(CfaRule::kRegister) && found.row.return_address.is(RegisterRule::kAtCfa) && registers.has(cfa.reg()) &&
      registers.get(cfa.reg()) +
              static_cast<std::uint64_t>(std::int64_t{cfa.offset()} + found.row.return_address.offset()) ==
          fp + sizeof record[0];
  return (followed || in_record) && context.space.memory().read(fp, record, sizeof record) && record[0] == 0 &&
         record[1] == 0;
}

constexpr std::uint8_t kPushRbp = 0x55, kMovRbpRsp[2][3] = {{0x48, 0x89, 0xe5}, {0x48, 0x8b, 0xec}};

bool is_mov_rbp_rsp(const std::uint8_t* code) {
  return std::memcmp(code, kMovRbpRsp[0], sizeof kMovRbpRsp[0]) == 0 ||
         std::memcmp(code, kMovRbpRsp[1], sizeof kMovRbpRsp[1]) == 0;
}

// Is an interrupted instruction one of the first two of a function that sets up a frame, push rbp; mov rbp, rsp?
// Compilers begin functions at multiples of 16. What such a place pushes first lies right below the return address.
bool begins_frame(const StepContext& context, const FrameRow& row) {
  constexpr std::uint64_t kAlignment = 16;
  const std::uint64_t pc = context.frame.pc().value(), begin = pc & ~(kAlignment - 1);
  std::uint8_t code[1 + sizeof kMovRbpRsp[0]];
  return context.space.architecture() == Architecture::kX86_64 && !context.frame.pc().is_return_address() &&
         pc - begin <= 1 && row.cfa.is_at(x86_64::kRsp) &&
         row.cfa.offset() == static_cast<std::int32_t>(8 + 8 * (pc - begin)) &&
         row.return_address == RegisterRule::at_cfa(-8) && read_code(context, begin, code, sizeof code) &&
         code[0] == kPushRbp && is_mov_rbp_rsp(code + 1);
}

// Does an interrupted instruction of generated code stand before its frame is set up? Compilers of generated code set
// the frame up first, behind checks at most (V8: is the code still valid?). So the return address is on top of the
// stack. In other code, registers may have been pushed before.
bool is_before_frame(const StepContext& context, const FrameRow& row) {
  constexpr std::size_t kMostBytes = 32;
  const CodeAddress pc = context.frame.pc();
  std::uint8_t code[kMostBytes];
  if (context.space.architecture() != Architecture::kX86_64 || pc.is_return_address() || !context.in_generated_code() ||
      !is_leaf_row(row) || !read_code(context, pc.value(), code, sizeof code))
    return false;
  using Kind = flow::StackEffect::Kind;
  flow::StraightCode line{ByteView(std::span(code)), pc.value(), sizeof code};
  while (const auto effect = line.next()) {
    const std::uint8_t* const behind = code + line.end();
    if (effect->kind == Kind::kPush)
      return effect->reg == x86_64::kRbp && line.end() + sizeof kMovRbpRsp[0] <= sizeof code && is_mov_rbp_rsp(behind);
    if (effect->kind != Kind::kNone && effect->kind != Kind::kBranch) return false;
  }
  return false;
}

// Does a return, whatever registers are lost on the way there, lead to the same caller?
bool returns_by(const StepContext& context, const FrameRow& row) {
  const auto back = followed_to_return(context);
  return back && back->cfa == row.cfa && back->return_address == row.return_address;
}

// Code of OCaml for Windows has no unwind codes. It preserves no register, and takes its frame off before every jump to
// another function. Its calls are in a table, which has a row at the return address.
bool leads_to_described_call(const StepContext& context, const flow::Synthesis& found, Step& step) {
  const Module* to = step.find_module(context.space, context.scratch, false);
  FrameRow row;
  const CodeAddress pc = step.caller.pc();
  return context.module->is_windows() && !context.module->may_be_leaf(context.frame.pc().lookup()) &&
         to == context.module && pc.is_return_address() && !to->may_be_leaf(pc.lookup()) &&
         to->row_at(pc.lookup(), row).has_value() &&
         (found.certainty != flow::Certainty::kGuess || returns_by(context, found.row));
}

bool is_certain(const flow::Synthesis& found) { return found.certainty == flow::Certainty::kCertain && !found.by_jump; }

FrameCertainty certainty_of(const StepContext& context, const flow::Synthesis& found, Step& step, CallCheck& check) {
  if (found.row.signal_frame) return FrameCertainty::kDescribed;
  if (is_certain(found)) return FrameCertainty::kProved;
  if (leads_to_described_call(context, found, step)) return FrameCertainty::kChecked;
  const Registers& frame = context.frame.registers;
  const RegisterNumber fp = Registers::fp_number(frame.architecture());
  const std::uint64_t return_at = step.saved.at(step.caller, Registers::pc_number(frame.architecture()));
  const bool has_frame_record = found.addresses_frame || found.keeps_frame_record;
  const bool in_frame_record = has_frame_record && frame.has(fp) && return_at == frame.get(fp) + 8;
  // Behind calls sp is not what it was where the functions called take their arguments off the stack (V8's do). The
  // frame that the code points to tells: a way out to a return address elsewhere has not followed these.
  const bool elsewhere =
      found.addresses_frame && frame.has(fp) && return_at != frame.get(fp) + 8 && points_to_frame(context);
  const bool by_return = found.certainty == flow::Certainty::kLikely && !found.by_jump && !elsewhere;
  return by_call_site(
      context, step,
      in_frame_record || by_return || is_before_frame(context, found.row) || begins_frame(context, found.row), check);
}

FrameCertainty certainty_of(const StepContext& context, const flow::Synthesis& found, Step& step) {
  CallCheck check;
  return certainty_of(context, found, step, check);
}

void judge(const StepContext& context, const flow::Synthesis& found, Step& step) {
  CallCheck check;
  step.certainty = certainty_of(context, found, step, check);
  tell_steady_step(context, found, check, step);
}

// A function that never returns has a caller all the same. It does not lead there, but where it addresses its frame by
// the frame pointer that does.
bool by_pointed_frame(const StepContext& context, const flow::Synthesis& found, Step& step, CallCheck& check) {
  Step trial;
  if (!found.addresses_frame || !by_frame_pointer(context, trial, true, check) || !trial.status.ok()) return false;
  step = trial;
  return true;
}

bool by_pointed_frame(const StepContext& context, const flow::Synthesis& found, Step& step) {
  CallCheck check;
  return by_pointed_frame(context, found, step, check);
}

// The same instead of what was found: that the code never returns, or a row that leads to the address 0.
bool by_pointed_frame_instead(const StepContext& context, const flow::Synthesis& found, Step& step) {
  CallCheck check;
  if (!by_pointed_frame(context, found, step, check)) return false;
  flow::Synthesis pointed;
  pointed.row = frame_pointer_row(context.space.architecture());
  pointed.addresses_frame = true;
  tell_steady_step(context, pointed, check, step, found.start == flow::Start::kNone ? &found.row : nullptr);
  return true;
}

// Where a frame that the code may have is a guess, the one that it points to may be certain. How much a return from
// there takes off the stack besides is not known, so sp is not.
bool by_pointed_frame_alone(const StepContext& context, const flow::Synthesis& found, Step& step) {
  Step trial;
  if (context.space.architecture() != Architecture::kX86_64 || !by_pointed_frame(context, found, trial) ||
      trial.certainty > FrameCertainty::kChecked)
    return false;
  trial.caller.forget(x86_64::kRsp);
  step = trial;
  return true;
}

// The way in proves a frame that no way out does: behind the call of a function that never returns stands nothing, or
// another function. Only with a caller whose call fits.
bool by_way_in(const StepContext& context, Step& step, bool on_every_stack = false) {
  Step trial;
  const bool fits = with_code(context, [&](const flow::CodeSource& source) {
    const auto found = followed_way_in(context);
    if (!found) return false;
    apply_row(context, found->row, FrameOrigin::kSynthesis, trial);
    if (trial.status.ok() && believable(context, found->row, trial, source)) {
      CallCheck check;
      trial.certainty = certainty_of(context, *found, trial, check);
      if (trial.certainty == FrameCertainty::kChecked && on_every_stack)
        tell_steady_step(context, *found, check, trial);
      if (trial.certainty == FrameCertainty::kChecked) return true;
    }
    expect_other_steps(context);  // the way in may fit another stack
    return false;
  });
  if (fits) step = trial;
  return fits;
}

bool follow_present_jump(const StepContext& context, Step& step) {
  const auto found = follow_present_code(context);
  if (!found || found->start != flow::Start::kNone || found->certainty == flow::Certainty::kGuess) return false;
  Step trial;
  apply_row(context, found->row, FrameOrigin::kSynthesis, trial);
  if (!trial.status.ok() || !accept(context, trial)) return false;
  trial.certainty = certainty_of(context, *found, trial);
  if (trial.certainty > FrameCertainty::kChecked) return false;
  step = trial;
  return true;
}

}  // namespace

// Generated code that leaves by jumps alone has the frame of what it jumps to now.
bool by_present_jump(const StepContext& context, Step& step) {
  if (!context.in_generated_code() || context.module->is_exact()) return false;
  const KeptCode& code = context.module->kept_code();
  if (code.memo == nullptr) return follow_present_jump(context, step);
  VainTries& vain = code.memo->vain_tries();
  const CodePlace at{code.code, context.frame.pc().lookup() - code.bias};
  if (!vain.is_due(at)) return false;
  const bool found = follow_present_jump(context, step);
  vain.note(at, found);
  return found;
}

bool by_synthesis(const StepContext& context, Step& step) {
  const bool needs_sp = context.space.architecture() != Architecture::kX86_64;  // else a row says if it does
  if (!context.options.synthesize || (needs_sp && !context.frame.registers.has_sp())) return false;
  if (begins_context(context)) {
    step.status = {WalkEnd::kComplete, {}};
    return true;
  }
  if (by_left_frame(context, step)) return true;
  begin_steady_step(context);
  auto found = synthesize(context);
  if (!found) {
    if (found.error().code != ErrorCode::kLimit)
      return found.error().code == ErrorCode::kNotFound && by_way_in(context, step);
    step.status = {WalkEnd::kBudget, found.error()};
    // backtrace_from() says where a walk ends, and of no frame how certain it is: it gives no guess for want of work.
    return context.space.is_own_process();
  }
  // Interpreters go on by jumps through tables that cannot be followed: that generated code seems never to return is
  // no proof that it has no caller (the JVM's template interpreter).
  if (found->start != flow::Start::kNone && context.in_generated_code()) return false;
  if (context.space.architecture() == Architecture::kX86_64 && context.module->is_windows() && is_leaf_row(found->row))
    keep_windows_registers(found->row);  // a system call's stub
  Step trial;
  if (found->start != flow::Start::kNone) {
    tell_steady_end(context, *found);
    if (by_process_start(context, step)) return true;
    const bool starts = starts_stack(context, found->start);
    if (!starts &&
        (by_pointed_frame_instead(context, *found, step) || by_way_in(context, step, !found->addresses_frame)))
      return true;
    trial.status = starts ? StepStatus{WalkEnd::kComplete, {}} : guessed_end(context);
  } else {
    // _dl_start_user leaves by a jump to the program's entry point, which is in a register: no return address.
    if (found->certainty == flow::Certainty::kGuess && by_arguments(context, step)) return true;
    apply_row(context, found->row, FrameOrigin::kSynthesis, trial);
    // An address of 0 marks the outermost frame only where code returns to it for certain.
    const bool ends = trial.status.end == WalkEnd::kComplete && !is_certain(*found) && !is_marked(context, *found);
    if (ends && by_pointed_frame_instead(context, *found, step)) return true;
    if ((ends || found->behind_padding) && by_way_in(context, step)) return true;
    if (ends) {
      if (by_process_start(context, step)) return true;
      trial.status = guessed_end(context);
    }
  }
  if (!accept(context, trial)) return false;
  if (!is_certain(*found) && leads_to_other_stack(context, trial)) return false;
  if (trial.status.ok()) judge(context, *found, trial);
  if (trial.certainty == FrameCertainty::kGuessed &&
      (by_pointed_frame_alone(context, *found, step) || by_entered_frame(context, step) ||
       by_present_jump(context, step)))
    return true;
  step = trial;
  return true;
}

// An interrupted instruction in code that nothing else knows: a jump through a bad pointer, say, or what Windows calls
// a leaf. The caller is still where the call put it. On Windows x64 also where a call has been made: by hand, as Wine's
// system call stubs do, whose unwinder asks no more of code without an entry.
bool by_leaf(const StepContext& context, Step& step) {
  const Architecture architecture = context.space.architecture();
  const bool windows = context.module != nullptr && context.module->may_be_leaf(context.frame.pc().lookup());
  if (context.frame.pc().is_return_address() && !(windows && architecture == Architecture::kX86_64)) return false;
  FrameRow row;
  if (architecture == Architecture::kAArch64) {
    row.cfa = CfaRule::at(aarch64::kSp, 0);
    row.return_address = RegisterRule::in_register(aarch64::kX30);
  } else {
    const auto word = static_cast<std::int32_t>(Registers::word_size(architecture));
    row.cfa = CfaRule::at(Registers::sp_number(architecture), word);
    row.return_address = RegisterRule::at_cfa(-word);
    if (windows) keep_windows_registers(row);
  }
  Step trial;
  apply_row(context, row, FrameOrigin::kLeaf, trial);
  const bool can_be =
      with_code(context, [&](const flow::CodeSource& source) { return believable(context, row, trial, source); });
  if (!trial.status.ok() || !can_be) return false;
  trial.certainty =
      windows ? FrameCertainty::kDescribed : by_call_site(context, trial, is_null_page(context.frame.pc().value()));
  step = trial;
  return true;
}

void keep_by_code(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
                  Scratch& scratch, Step& step) {
  if (module == nullptr || !frame.registers.has_sp()) return;
  const StepContext context{space, frame, module, options, scratch};
  const auto row = followed_to_return(context);
  if (!row) return;
  Step trial;
  apply_row(context, *row, FrameOrigin::kSynthesis, trial);
  if (!trial.status.ok() || trial.caller.pc() != step.caller.pc() || trial.caller.sp() != step.caller.sp()) return;
  trial.caller.for_each([&](RegisterNumber reg, std::uint64_t value) {
    if (step.caller.has(reg)) return;
    step.caller.set(reg, value);
    step.saved.set(step.caller, reg, trial.saved.at(trial.caller, reg));
  });
}

}  // namespace windlass::walk
