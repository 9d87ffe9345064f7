#include "walk/steady_step.h"

#include <cstring>

#include "flow/rows.h"
#include "walk/code_memo.h"
#include "walk/inside.h"

namespace windlass::walk {
namespace {

constexpr std::int32_t kRecord = 16;  // from a frame record to the CFA

CodeMemo* listening_memo(const Module* module) {
  CodeMemo* memo = module != nullptr ? module->kept_code().memo : nullptr;
  return memo != nullptr && memo->listener() != nullptr ? memo : nullptr;
}

// Where the caller's frame is, and from which registers the rows count that say so.
class Layout {
 public:
  Layout(const StepContext& context, std::uint64_t cfa)
      : memory_(context.space.memory()), frame_(context.frame.registers), cfa_(cfa) {}

  // False: the row finds another caller, or finds it in a way that the kernel side cannot compare.
  bool add(const FrameRow& row) {
    if (!row.cfa.is(CfaRule::kRegister) || row.return_address != RegisterRule::at_cfa(-8) || row.signal_frame ||
        row.registers.find(x86_64::kRsp) != nullptr)
      return false;
    const RegisterNumber reg = row.cfa.reg();
    if ((reg != x86_64::kRsp && reg != x86_64::kRbp) || !frame_.has(reg) ||
        frame_.get(reg) + static_cast<std::uint64_t>(std::int64_t{row.cfa.offset()}) != cfa_)
      return false;
    return fix(reg);
  }
  // The stack was asked about the row before the right one was found.
  bool ask(const FrameRow& row, bool answer) {
    const bool by_fp = row.cfa.is_at(x86_64::kRbp);
    if ((!by_fp && !row.cfa.is_at(x86_64::kRsp)) || row.return_address != RegisterRule::at_cfa(-8) ||
        (by_fp && !frame_.has(x86_64::kRbp)))
      return answer && add(row);
    const std::uint64_t place =
        frame_.get(row.cfa.reg()) + static_cast<std::uint64_t>(std::int64_t{row.cfa.offset()} - 8);
    if (place + 8 == cfa_) return answer && add(row);
    // Where rbp is from rsp has to be the same.
    if (by_fp && !(fix(x86_64::kRsp) && fix(x86_64::kRbp))) return false;
    return has_other_word(static_cast<std::int64_t>(place - frame_.sp()), answer);
  }
  // Is the frame record at rbp that of the frame? Others have to be, too.
  bool add_record() {
    return frame_.has(x86_64::kRbp) && frame_.get(x86_64::kRbp) + kRecord == cfa_ && fix(x86_64::kRbp);
  }
  [[nodiscard]] std::int32_t from_sp() const { return from_sp_; }
  [[nodiscard]] std::int32_t from_fp() const { return from_fp_; }
  [[nodiscard]] SteadyStep::Word word() const { return word_; }
  [[nodiscard]] std::int32_t word_at() const { return word_at_; }

 private:
  // Other frames must have the CFA as far above the register.
  bool fix(RegisterNumber reg) {
    const auto distance = static_cast<std::int64_t>(cfa_ - frame_.get(reg));
    if (distance == 0 || distance != static_cast<std::int32_t>(distance)) return false;
    (reg == x86_64::kRsp ? from_sp_ : from_fp_) = static_cast<std::int32_t>(distance);
    return true;
  }
  // The stack was asked for a return address so far above rsp, and other frames must answer the same.
  bool has_other_word(std::int64_t above, bool answer) {
    if (above < 0) return !answer;
    std::uint64_t value = 0;
    if (above > kMaxWordAt || !memory_.read(frame_.sp() + static_cast<std::uint64_t>(above), &value, sizeof value))
      return false;
    const auto word = value == 0 ? SteadyStep::Word::kZero : SteadyStep::Word::kNoReturnAddress;
    if ((value != 0 && answer) || (word_ != SteadyStep::Word::kAny && word_at_ != above)) return false;
    word_ = word;
    word_at_ = static_cast<std::int32_t>(above);
    return true;
  }

  static constexpr std::int64_t kMaxWordAt = 1 << 20;
  const Memory& memory_;
  const Registers& frame_;
  std::uint64_t cfa_;
  std::int32_t from_sp_ = 0, from_fp_ = 0, word_at_ = 0;
  SteadyStep::Word word_ = SteadyStep::Word::kAny;
};

// Is it code that other unwinders than by_synthesis() leave by what the stack holds?
bool may_be_left_otherwise(const StepContext& context) {
  const bool is_exact = context.in_generated_code() && context.module->is_exact();
  return context.space.architecture() != Architecture::kX86_64 || is_exact || context.module->is_windows() ||
         context.scratch.left_frames.of(context.module->id()).room != 0 || may_begin_thread(context);
}

bool same_frame_pointer(const FrameRow& a, const FrameRow& b) {
  const RegisterRule *in_a = a.registers.find(x86_64::kRbp), *in_b = b.registers.find(x86_64::kRbp);
  return in_a == nullptr || in_b == nullptr ? in_a == in_b : *in_a == *in_b;
}

// Would other stacks have the same certainty? As certainty_of() and by_call_site() tell it.
bool has_same_certainty(const flow::Synthesis& found, const CallCheck& call, FrameCertainty certainty, Layout& layout) {
  if (certainty == FrameCertainty::kProved) return true;
  if (flow::has_way_in(call.site))
    return call.is_way_in && layout.add(call.way_in) && same_frame_pointer(call.way_in, found.row);
  if (call.site == flow::CallSite::kReaches) return true;
  // The code was followed, or the frame record counted.
  if (!found.addresses_frame && !found.keeps_frame_record) return true;
  return layout.add_record() || !found.addresses_frame;
}

// The whole function that says the same of the frame at hand; null: there is none.
std::shared_ptr<const flow::WholeFunction> function_of(const StepContext& context, const FrameRow& row) {
  const KeptCode& code = context.module->kept_code();
  const std::uint64_t at = context.frame.pc().lookup() - code.bias;
  auto function = code.memo->functions().known({code.code, at});
  const FrameRow* const known = function != nullptr ? function->find(at) : nullptr;
  const bool says_it =
      known != nullptr && !function->calls_system && flow::same_row(context.space.architecture(), *known, row);
  return says_it ? function : nullptr;
}

}  // namespace

void begin_steady_step(const StepContext& context) {
  if (CodeMemo* memo = listening_memo(context.module); memo != nullptr) memo->begin_step();
}

void expect_other_steps(const StepContext& context) {
  if (CodeMemo* memo = listening_memo(context.module); memo != nullptr) memo->expect_change();
}

void tell_steady_step(const StepContext& context, const flow::Synthesis& found, const CallCheck& call, Step& step,
                      const FrameRow* left_out) {
  CodeMemo* memo = listening_memo(context.module);
  if (memo == nullptr || !memo->step_holds()) return;
  const Registers& frame = context.frame.registers;
  const bool is_known = step.certainty == FrameCertainty::kProved || step.certainty == FrameCertainty::kChecked;
  if (!is_known || found.start != flow::Start::kNone || !frame.has_sp() || !step.caller.has_sp() ||
      may_be_left_otherwise(context))
    return;
  const Module* to = step.find_module(context.space, context.scratch, true);
  if (to == nullptr || to->kept_code().memo != memo) return;
  const bool code_changes = context.module->kept_code().changes, caller_changes = to->kept_code().changes;
  if (memo->follows_changing() && !code_changes && !caller_changes) return;
  Layout layout(context, step.caller.sp());
  if (!layout.add(found.row) || (left_out != nullptr && !layout.ask(*left_out, false)) ||
      !memo->all_asked([&](const FrameRow& row, bool answer) { return layout.ask(row, answer); }) ||
      !has_same_certainty(found, call, step.certainty, layout))
    return;
  SteadyStep made{context.frame.pc(), found.row,     step.caller.pc().value(), step.certainty, layout.from_sp(),
                  layout.from_fp(),   layout.word(), layout.word_at()};
  made.code_changes = code_changes;
  made.caller_changes = caller_changes;
  if (step.certainty == FrameCertainty::kProved) {
    made.function = function_of(context, found.row);
    made.function_bias = context.module->kept_code().bias;
  }
  memo->listener()->take(made);
}

void tell_steady_end(const StepContext& context, const flow::Synthesis& found) {
  CodeMemo* memo = listening_memo(context.module);
  const Registers& frame = context.frame.registers;
  const bool any = found.start == flow::Start::kEntryPoint;
  const bool halts = found.start == flow::Start::kHalts && frame.has(x86_64::kRbp) && frame.get(x86_64::kRbp) == 0;
  if (memo == nullptr || !memo->step_holds() || memo->follows_changing() || (!any && !halts) ||
      may_be_left_otherwise(context))
    return;
  Layout layout(context, 0);
  if (!memo->all_asked([&](const FrameRow& row, bool answer) { return layout.ask(row, answer); })) return;
  SteadyStep step{context.frame.pc(), found.row};
  step.from_fp = any ? 0 : 1;
  step.word = layout.word();
  step.word_at = layout.word_at();
  memo->listener()->take(step);
}

}  // namespace windlass::walk
