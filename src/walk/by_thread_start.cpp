// A thread's first C function where nothing describes it and it never returns: musl's start(), which ends by calling
// pthread_exit(). No way out of it can be followed, and where it begins is not known in a stripped library.
#include <optional>

#include "walk/code_answers.h"

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

bool is_described(const StepContext& context, CodeAddress pc) {
  FrameRow row;
  const Module* module = context.space.find(pc.lookup());
  return module == nullptr || module->row_at(pc.lookup(), row).has_value();
}

// The caller has cleared its frame pointer (psABI 3.4.1), and this function has left it alone or pushed it first.
FrameRow row_with_place(std::uint64_t pc, std::int32_t cfa_offset, bool pushed) {
  FrameRow row;
  row.begin = pc;
  row.end = pc + 1;
  row.cfa = CfaRule::at(x86_64::kRsp, cfa_offset);
  row.return_address = RegisterRule::at_cfa(-static_cast<std::int32_t>(kWord));
  for (unsigned slot = 0; slot < Registers::kSlots; ++slot) {
    const RegisterNumber reg = Registers::number_of(slot);
    if (reg != x86_64::kRbp && is_callee_saved(Architecture::kX86_64, reg))
      (void)row.registers.set(reg, RegisterRule::undefined());
  }
  if (pushed) (void)row.registers.set(x86_64::kRbp, RegisterRule::at_cfa(-2 * static_cast<std::int32_t>(kWord)));
  return row;
}

}  // namespace

// The caller is proven to start threads: it goes straight to a halt behind an indirect call, has cleared the frame
// pointer, and nobody describes it; its own callers there are none.
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
    trial.certainty = by_call_site(context, trial, true);
    if (trial.certainty == FrameCertainty::kGuessed) return false;
    step = trial;
    return true;
  });
}

}  // namespace windlass::walk
