// A landing pad's frame, while libgcc goes there. See flow/eh_return.h.
//
// _Unwind_RaiseException and its like keep two struct _Unwind_Context on their stack (unwind-dw2.c): their own and the
// landing pad's. A context begins with an array of the places where registers have been saved, by DWARF number. The CFA
// and the pc follow. The own context is known by nine or more addresses that it must hold (i386: seven). They also tell
// how long the arrays are. The landing pad's context is the other one with registers saved on this stack. The words
// that uw_install_context_1 reads stay until that function is left, so the frame is exact in the middle of it, too.
#include <algorithm>
#include <span>

#include "flow/eh_return.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

constexpr std::size_t kMostWordsOfFrame = 512;
constexpr RegisterNumber kX4 = 4;

// The frame of the function, from sp up to its CFA.
struct FrameWords {
  const Architecture architecture;
  const unsigned word = Registers::word_size(architecture);  // bytes
  // In libgcc's arrays; AArch64's is the link register's.
  const RegisterNumber return_column =
      architecture == Architecture::kAArch64 ? aarch64::kX30 : Registers::pc_number(architecture);
  std::uint64_t words[kMostWordsOfFrame];
  std::size_t count = 0;
  std::uint64_t begin = 0, cfa = 0;

  explicit FrameWords(Architecture of) : architecture(of) {}
  bool read(const Memory& memory, std::uint64_t sp, std::uint64_t frame_cfa) {
    if (sp % word != 0 || frame_cfa % word != 0 || frame_cfa <= sp || frame_cfa - sp > kMostWordsOfFrame * word)
      return false;
    count = static_cast<std::size_t>(frame_cfa - sp) / word;
    begin = sp, cfa = frame_cfa;
    if (word == sizeof words[0]) return memory.read(sp, words, count * word);
    std::uint32_t narrow[kMostWordsOfFrame];
    if (!memory.read(sp, narrow, count * word)) return false;
    std::copy_n(narrow, count, words);
    return true;
  }
};

std::uint64_t slot_of(const RegisterRule& rule, std::uint64_t cfa) {
  return cfa + static_cast<std::uint64_t>(std::int64_t{rule.offset()});
}

// Calls use(register, rule) for those the function has saved, the return address too, until one is false.
template <typename Use>
bool each_saved(const FrameWords& frame, const FrameRow& row, Use&& use) {
  for (const RegisterEntry entry : row.registers)
    if (entry.reg != frame.return_column && entry.rule.is(RegisterRule::kAtCfa) && !use(entry.reg, entry.rule))
      return false;
  return row.return_address.is(RegisterRule::kAtCfa) && use(frame.return_column, row.return_address);
}

struct Contexts {
  std::size_t own = 0, target = 0;  // indices of words
  std::size_t cfa = 0;              // of the CFA in either
};

bool is_own(const FrameWords& frame, const FrameRow& row, std::size_t at) {
  return each_saved(frame, row, [&](RegisterNumber reg, const RegisterRule& rule) {
    return frame.words[at + reg] == slot_of(rule, frame.cfa);
  });
}

// Its registers are where the function has them or further up, below its CFA.
bool is_target(const FrameWords& frame, const FrameRow& row, std::size_t at, std::size_t cfa_index) {
  const std::uint64_t cfa = frame.words[at + cfa_index];
  if (cfa < frame.cfa || !is_stack_address(frame.architecture, cfa)) return false;
  return each_saved(frame, row, [&](RegisterNumber reg, const RegisterRule& rule) {
    const std::uint64_t saved = frame.words[at + reg];
    return saved == slot_of(rule, frame.cfa) || (saved % frame.word == 0 && saved >= frame.cfa && saved < cfa);
  });
}

bool find_contexts(const FrameWords& frame, const FrameRow& row, Contexts& found) {
  std::size_t least = frame.return_column + 1u;
  for (const RegisterEntry entry : row.registers) least = std::max(least, entry.reg + std::size_t{1});
  std::size_t own = 0;
  while (own + least < frame.count && !is_own(frame, row, own)) ++own;
  std::size_t length = least;
  while (own + length < frame.count && frame.words[own + length] != frame.cfa) ++length;
  if (own + length >= frame.count) return false;
  for (std::size_t at = 0; at + length < frame.count; ++at) {
    if (at == own || !is_target(frame, row, at, length)) continue;
    found = {own, at, length};
    return true;
  }
  return false;
}

// The landing pad's function, as its call that throws returns to it.
bool by_contexts(const StepContext& context, const FrameRow& row, std::uint64_t cfa, Step& step) {
  const Memory& memory = context.space.memory();
  FrameWords frame(context.space.architecture());
  Contexts found;
  if (!frame.read(memory, context.lowest(), cfa) || !find_contexts(frame, row, found)) return false;
  const Registers& callee = context.frame.registers;
  Registers next(callee.architecture());
  step.saved = context.frame.saved;
  std::uint64_t copied_pc = 0, own_pc = 0;
  const bool read = each_saved(frame, row, [&](RegisterNumber reg, const RegisterRule& rule) {
    const std::uint64_t at = frame.words[found.target + reg];
    std::uint64_t value = 0;
    if (!memory.read(at, &value, frame.word)) return false;
    if (reg == frame.return_column) {
      copied_pc = value;
      return memory.read(slot_of(rule, cfa), &own_pc, frame.word);
    }
    if (!is_callee_saved(callee.architecture(), reg)) return true;
    next.set(reg, value);
    step.saved.set(next, reg, at);
    return true;
  });
  if (!read) return false;
  // The landing pad's address is written over the copied one. It is no return address: the code before it is another
  // part of the function.
  const bool at_pad = own_pc != frame.words[found.own + found.cfa + 1] && own_pc != copied_pc;
  next.set_sp(frame.words[found.target + found.cfa]);
  next.set_pc(at_pad ? CodeAddress::instruction(own_pc)
                     : CodeAddress::return_address(copied_pc & ~context.space.pointer_mask()));
  step.caller = next;
  step.status = {};
  step.origin = FrameOrigin::kCfi;
  step.certainty = FrameCertainty::kDescribed;
  step.signal_frame = false;
  step.module_known = false;
  return accept(context, step);
}

// Its registers have been taken back, and a row says where it is: the next instruction is the landing pad's first. The
// rules of what the function had saved are meant for its own frame. (A runtime's code may just have its return address
// in a register.)
bool by_tail(const StepContext& context, FrameRow row, Step& step) {
  if (context.module->is_exact()) {
    apply_row(context, row, FrameOrigin::kCfi, step);
    return step.status.ok() && accept(context, step);
  }
  for (const RegisterEntry entry : FrameRow(row).registers)
    if (is_callee_saved(context.space.architecture(), entry.reg)) row.registers.erase(entry.reg);
  apply_row(context, row, FrameOrigin::kCfi, step);
  if (!step.status.ok()) return false;
  step.caller.set_pc(CodeAddress::instruction(step.caller.pc().value()));
  return accept(context, step);
}

// In the part of the function that goes to a landing pad, and to nowhere else.
bool by_installation(const StepContext& context, const FrameRow& row, Step& step) {
  const Registers& registers = context.frame.registers;
  const std::uint64_t cfa = registers.get(row.cfa.reg()) + static_cast<std::uint64_t>(std::int64_t{row.cfa.offset()});
  if (registers.has(row.cfa.reg()) && by_contexts(context, row, cfa, step)) return true;
  step.status = {WalkEnd::kLost,
                 Error{ErrorCode::kNotFound, "the caller's registers have been overwritten", registers.pc().value()}};
  return true;
}

bool by_landing_of_x86(const StepContext& context, const FrameRow& row, Step& step) {
  constexpr RegisterNumber kRcx = 2;
  const Registers& registers = context.frame.registers;
  const Architecture architecture = context.space.architecture();
  const std::uint64_t pc = registers.pc().value();
  std::uint8_t code[flow::kEhReturnBytes];
  const auto read = [&](std::uint64_t address, std::size_t size) {
    return read_code(context.space, address, code, size) ? ByteView(std::span(code).first(size)) : ByteView();
  };
  if (!registers.pc().is_return_address() &&
      (row.cfa.is_at(architecture == Architecture::kI386 ? i386::kEcx : kRcx) ||
       flow::behind_eh_return(read(pc - flow::kEhReturnMove, flow::kEhReturnMove), architecture) ||
       row.return_address.is(RegisterRule::kInRegister)))
    return by_tail(context, row, step);
  if (!flow::saves_landing_registers(row, architecture)) return false;
  const std::uint64_t most = std::min<std::uint64_t>(sizeof code, context.module->info().end - pc);
  return flow::leads_to_eh_return(read(pc, most), pc, architecture) && by_installation(context, row, step);
}

// The last two instructions, add sp, sp, x4; ret: `row` says where the frame was.
bool by_end_of_aarch64(const StepContext& context, const FrameRow& row, Step& step) {
  const Registers& registers = context.frame.registers;
  std::uint8_t code[flow::kEhReturnEnd];
  if (!registers.has(kX4) || registers.get(kX4) == 0 || !read_code(context, row.begin, code, sizeof code) ||
      !flow::is_eh_return_end(ByteView(std::span(code))))
    return false;
  apply_row(context, row, FrameOrigin::kCfi, step);
  if (!step.status.ok()) return false;
  if (registers.pc().value() == row.begin) step.caller.set_sp(step.caller.sp() + registers.get(kX4));
  step.caller.set_pc(CodeAddress::instruction(step.caller.pc().value()));
  return accept(context, step);
}

bool by_landing_of_aarch64(const StepContext& context, const FrameRow& row, Step& step) {
  constexpr std::uint64_t kMost = 1024;
  const Registers& registers = context.frame.registers;
  if (!flow::saves_landing_registers(row, Architecture::kAArch64)) return by_end_of_aarch64(context, row, step);
  const auto function = context.module->function_at(registers.pc().lookup());
  std::uint8_t code[kMost];
  if (!function || function->end - function->begin > kMost) return false;
  const std::uint64_t size = function->end - function->begin;
  if (!read_code(context.space, function->begin, code, size)) return false;
  switch (flow::way_out(ByteView(std::span(code).first(size)), function->begin, registers.pc().value())) {
    case flow::WayOut::kPlain: return false;
    case flow::WayOut::kAsX4HasIt:
      if (registers.has(kX4) && registers.get(kX4) == 0) return false;
      break;
    case flow::WayOut::kLanding: break;
  }
  return by_installation(context, row, step);
}

}  // namespace

bool by_landing(const StepContext& context, const FrameRow& row, Step& step) {
  if (!row.cfa.is(CfaRule::kRegister)) return false;
  return context.space.architecture() == Architecture::kAArch64 ? by_landing_of_aarch64(context, row, step)
                                                                : by_landing_of_x86(context, row, step);
}

}  // namespace windlass::walk
