// The first instruction of a thread, and its first C function if nothing describes that and it never returns. An
// example is musl's start(), which ends by calling pthread_exit(). No path out of it can be followed, and a stripped
// library does not tell where it begins.
#include <optional>
#include <span>

#include "base/x86_signal_return.h"
#include "flow/stack_effect.h"
#include "walk/code_answers.h"
#include "walk/inside.h"
#include "walk/steady_step.h"

namespace windlass::walk {
namespace {

constexpr std::uint64_t kWord = 8;

// The place of the return address: the first word from sp on that may be one. A frame in between would have one, too.
std::optional<std::uint64_t> first_return_address(const StepContext& context, const flow::CodeSource& source) {
  constexpr std::uint64_t kMostWords = 16;  // start() pushes four at most
  const std::uint64_t sp = context.frame.registers.sp();
  for (std::uint64_t place = sp; place < sp + kMostWords * kWord; place += kWord) {
    std::uint64_t value = 0;
    if (!context.space.memory().read(place, &value, sizeof value)) return std::nullopt;
    if (flow::may_be_return_address(source, value)) return place;
  }
  return std::nullopt;
}

// Where code goes that asks whether rax is 0, if it is: test rax, rax, then conditional jumps. 0: it is other code.
std::uint64_t goes_if_zero(const StepContext& context, std::uint64_t pc) {
  constexpr std::size_t kMostBytes = 24;
  constexpr std::uint8_t kTest[] = {0x85, 0xc0}, kRexW = 0x48;  // test eax, eax
  std::uint8_t code[kMostBytes];
  if (!read_code(context, pc, code, sizeof code)) return 0;
  std::size_t at = code[0] == kRexW ? 1 : 0;
  if (code[at] != kTest[0] || code[at + 1] != kTest[1]) return 0;
  for (at += sizeof kTest; at < sizeof code;) {
    const auto effect = flow::stack_effect(ByteView(std::span(code).subspan(at)), pc + at);
    if (!effect || effect->kind != flow::StackEffect::Kind::kBranch) return 0;
    const unsigned condition = (code[at] == 0x0f ? code[at + 1] : code[at]) & 0xf;
    constexpr unsigned kZero = 4, kNegative = 8, kLess = 12;
    if (condition == kZero) return effect->target;
    if (condition != kNegative && condition != kLess) return 0;
    at += effect->length;
  }
  return 0;
}

bool is_described(const StepContext& context, CodeAddress pc) {
  FrameRow row;
  const Module* module = module_at(context.space, pc.lookup());
  return module == nullptr || module->row_at(pc.lookup(), row).has_value();
}

// The caller has cleared its frame pointer (psABI 3.4.1), and this function has left it alone or pushed it first.
FrameRow row_with_place(std::uint64_t pc, std::int32_t cfa_offset, bool pushed) {
  FrameRow row;
  row.begin = pc;
  row.end = pc + 1;
  row.cfa = CfaRule::at(x86_64::kRsp, cfa_offset);
  row.return_address = RegisterRule::at_cfa(-static_cast<std::int32_t>(kWord));
  const auto rbp = pushed ? RegisterRule::at_cfa(-2 * static_cast<std::int32_t>(kWord)) : RegisterRule::same_value();
  (void)row.registers.set(x86_64::kRbp, rbp);
  lose_unsaved(row, Architecture::kX86_64);
  return row;
}

// What the stack holds here, other stacks may hold elsewhere. But where the code says the same, the step is theirs,
// too.
void tell_if_followed(const StepContext& context, const FrameRow& row, const CallCheck& check, Step& step) {
  begin_steady_step(context);
  auto found = followed_way_in(context);
  if (!found || found->row.cfa != row.cfa || found->row.return_address != row.return_address) return;
  found->row = row;
  tell_steady_step(context, *found, check, step);
}

// Where a thread goes that has just been made, if it may stand here: behind a system call, and 0 is in rax. 0: none.
std::uint64_t new_thread_goes_to(const StepContext& context) {
  const CodeAddress pc = context.frame.pc();
  std::uint8_t before[x86::kSystemCallSize];
  if (context.frame.registers.architecture() != Architecture::kX86_64 || pc.is_return_address() ||
      !read_code(context, pc.value() - sizeof before, before, sizeof before) || !x86::is_syscall(before))
    return 0;
  return goes_if_zero(context, pc.value());
}

}  // namespace

bool may_begin_thread(const StepContext& context) { return new_thread_goes_to(context) != 0; }

// A new thread starts behind the system call that made it, with 0 in rax and nothing on its stack. glibc's clone3()
// describes the code to which this leads as having no caller. The code in between is not described.
bool by_thread_begin(const StepContext& context, Step& step) {
  const Registers& registers = context.frame.registers;
  if (!registers.has(x86_64::kRax) || registers.get(x86_64::kRax) != 0) return false;
  const std::uint64_t target = new_thread_goes_to(context);
  const Module* module = target != 0 ? module_at(context.space, target) : nullptr;
  FrameRow row;
  if (module == nullptr || !module->row_at(target, row) || !row.return_address.is(RegisterRule::kUndefined) ||
      module->end_proof(CodeAddress::instruction(target)) != sources::EndProof::kProven)
    return false;
  step.status = {WalkEnd::kComplete, {}};
  return true;
}

// The caller is proven to start threads: it goes straight to a halt behind an indirect call, has cleared the frame
// pointer, and has no description. So it has no caller itself.
bool by_thread_start(const StepContext& context, Step& step) {
  const Frame& frame = context.frame;
  const Registers& registers = frame.registers;
  if (registers.architecture() != Architecture::kX86_64 || !frame.pc().is_return_address() || !registers.has_sp() ||
      !context.options.synthesize || registers.sp() % kWord != 0)
    return false;
  return with_code(context, [&](const flow::CodeSource& source) {
    const auto place = first_return_address(context, source);
    std::uint64_t held = 0;
    if (!place || !context.space.memory().read(*place, &held, sizeof held)) return false;
    const CodeAddress caller = CodeAddress::return_address(held);
    if (is_described(context, caller) || !goes_to_a_halt(context, caller) || goes_to_a_halt(context, frame.pc()))
      return false;
    std::uint64_t pushed = 1;
    const bool has_pushed = *place >= registers.sp() + kWord &&
                            context.space.memory().read(*place - kWord, &pushed, sizeof pushed) && pushed == 0;
    const bool is_clear = registers.has(x86_64::kRbp) && registers.get(x86_64::kRbp) == 0;
    if (!has_pushed && !is_clear) return false;
    const auto offset = static_cast<std::int32_t>(*place + kWord - registers.sp());
    Step trial;
    const FrameRow row = row_with_place(frame.pc().value(), offset, has_pushed);
    apply_row(context, row, FrameOrigin::kSynthesis, trial);
    if (!believable(context, row, trial, source) || !trial.status.ok()) return false;
    CallCheck check;
    trial.certainty = by_call_site(context, trial, true, check);
    if (trial.certainty == FrameCertainty::kGuessed) return false;
    tell_if_followed(context, row, check, trial);
    step = trial;
    return true;
  });
}

}  // namespace windlass::walk
