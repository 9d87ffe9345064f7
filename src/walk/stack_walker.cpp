#include <algorithm>

#include "base/registers.h"
#include "walk/code_ranges.h"
#include "walk/scratch_pool.h"
#include "walk/unwinders.h"
#include "windlass/walk.h"

namespace windlass {
std::string_view origin_name(FrameOrigin origin) {
  switch (origin) {
    case FrameOrigin::kContext: return "context";
    case FrameOrigin::kCfi: return "cfi";
    case FrameOrigin::kSynthesis: return "code";
    case FrameOrigin::kFramePointer: return "frame-pointer";
    case FrameOrigin::kLeaf: return "leaf";
    case FrameOrigin::kPdata: return "pdata";
  }
  return "?";
}

std::string_view certainty_name(FrameCertainty certainty) {
  switch (certainty) {
    case FrameCertainty::kDescribed: return "described";
    case FrameCertainty::kProved: return "proved";
    case FrameCertainty::kChecked: return "checked";
    case FrameCertainty::kChained: return "chained";
    case FrameCertainty::kGuessed: return "guessed";
  }
  return "?";
}

std::string_view end_name(WalkEnd end) {
  switch (end) {
    case WalkEnd::kRunning: return "running";
    case WalkEnd::kComplete: return "complete";
    case WalkEnd::kNoModule: return "no module";
    case WalkEnd::kNoRow: return "no unwind information";
    case WalkEnd::kUnreadable: return "stack unreadable";
    case WalkEnd::kLost: return "register lost";
    case WalkEnd::kNoProgress: return "no progress";
    case WalkEnd::kBadRow: return "bad unwind information";
    case WalkEnd::kLimit: return "frame limit";
    case WalkEnd::kGuessed: return "a frame is a guess";
    case WalkEnd::kForeign: return "code of another machine";
    case WalkEnd::kBudget: return "budget used up";
    case WalkEnd::kChained: return "chained";
  }
  return "?";
}

StackWalker::StackWalker(const AddressSpace& space, const Registers& registers, const WalkOptions& options)
    : space_(&space), options_(options), scratch_(walk::take_scratch()) {
  restart(registers);
}

StackWalker::~StackWalker() = default;

void walk::ReturnScratch::operator()(Scratch* scratch) const {
  scratch->code.leave();
  return_scratch(scratch);
}

// The thread's pointer is the same for all frames, but for what rows have callers find there.
static void keep_thread(const Registers& registers, walk::Scratch& scratch) {
  if (registers.architecture() != Architecture::kX86_64) return;
  if (registers.has(x86_64::kFsBase)) scratch.fs_base = registers.get(x86_64::kFsBase);
  if (registers.has(x86_64::kGsBase)) scratch.gs_base = registers.get(x86_64::kGsBase);
}

void StackWalker::restart(const Registers& registers) {
  frame_ = Frame{};
  frame_.registers = registers;
  scratch_->code.enter(walk::code_grace_period());
  walk::correct_first_pc(*space_, frame_.registers);
  scratch_->undescribed.forget();
  flow::budget_of(*scratch_->synthesis) = flow::Budget(options_.max_followed);
  set_module(walk::find_code(*space_, *scratch_, frame_.pc().lookup(), true));
  frames_ = 1;
  end_ = WalkEnd::kRunning;
  certainty_ = FrameCertainty::kDescribed;
  error_ = {};
  scratch_->progress = {};
  scratch_->fs_base.reset();
  scratch_->gs_base.reset();
  keep_thread(frame_.registers, *scratch_);
  scratch_->exact = frame_.registers;
  scratch_->since_exact = 0;
}

std::uint32_t StackWalker::may_follow() const { return flow::budget_of(*scratch_->synthesis).left(); }

void StackWalker::set_module(const walk::Module* module) {
  module_ = module;
  frame_.module = module != nullptr && module->has_range() ? &module->info() : nullptr;
  const auto& registers = frame_.registers;
  sources::NameSource* names = module != nullptr && registers.has_sp() ? module->names() : nullptr;
  frame_.function = names != nullptr ? names->frame_function(registers.pc().lookup(), registers, space_->memory()) : 0;
}

const walk::KeptRow* StackWalker::kept_row() const {
  if (module_ == nullptr || !frame_.registers.has_sp()) return nullptr;
  return scratch_->rows.find(module_->rows_id(), frame_.pc());
}

bool StackWalker::ended(WalkEnd end, const Error& error) {
  const bool at_outermost = end == WalkEnd::kComplete || end == WalkEnd::kChained;
  if (at_outermost && certainty_ == FrameCertainty::kGuessed)
    return ended(WalkEnd::kGuessed, Error{ErrorCode::kNotFound, "nothing proves that this frame is a caller", guess_});
  if (end == WalkEnd::kComplete && certainty_ == FrameCertainty::kChained)
    return ended(WalkEnd::kChained, Error{ErrorCode::kNotFound, "frame pointers alone lead to this frame", guess_});
  if (end == WalkEnd::kChained) certainty_ = FrameCertainty::kChained;
  end_ = end;
  error_ = error;
  return false;
}

// The present frame needs a register that calls need not preserve. Walks again from the last frame that had all of
// these registers, and asks the code of each frame which values it leaves to its caller. True if one more register is
// known.
bool StackWalker::find_lost_registers() {
  constexpr std::size_t kFarthest = 8;  // hand-written code that calls its own seldom goes deeper than two
  const std::size_t steps = scratch_->since_exact;
  if (!options_.synthesize || steps == 0 || steps > kFarthest) return false;
  Frame frame;
  frame.registers = scratch_->exact;
  const walk::Module* module = walk::find_code(*space_, *scratch_, frame.pc().lookup(), true);
  for (std::size_t i = 0; i < steps; ++i) {
    walk::Step step;
    walk::find_caller(*space_, frame, module, options_, *scratch_, step);
    if (!step.status.ok()) return false;
    walk::keep_by_code(*space_, frame, module, options_, *scratch_, step);
    frame.registers = step.caller;
    frame.saved = step.saved;
    module = step.find_module(*space_, *scratch_, true);
  }
  if (frame.pc() != frame_.pc() || !frame.registers.has_sp() || !frame_.registers.has_sp() ||
      frame.sp() != frame_.sp() || (frame.registers.known_slots() & ~frame_.registers.known_slots()) == 0)
    return false;
  frame_.registers = frame.registers;
  frame_.saved = frame.saved;
  return true;
}

bool StackWalker::step() {
  if (end_ != WalkEnd::kRunning) return false;
  const std::uint64_t pc = frame_.pc().value();
  if (frames_ >= options_.max_frames) return ended(WalkEnd::kLimit, Error{ErrorCode::kLimit, "frame limit", pc});
  if (const walk::KeptRow* row = kept_row(); row != nullptr) {
    if (row->ends_stack()) return ended(WalkEnd::kComplete, {});
    if (walk::apply_in_place(*row, *space_, options_, frame_, module_)) {
      scratch_->progress.moved_up();
      ++scratch_->since_exact;
      ++frames_;
      set_module(module_);
      return true;
    }
  }
  walk::Step step;
  walk::find_caller(*space_, frame_, module_, options_, *scratch_, step);
  if ((step.status.end == WalkEnd::kLost || scratch_->register_lost) && find_lost_registers()) {
    step = {};
    walk::find_caller(*space_, frame_, module_, options_, *scratch_, step);
  }
  if (!step.status.ok()) return ended(step.status.end, step.status.error);
  const std::uint64_t from = frame_.registers.has_sp() ? frame_.sp() : scratch_->lowest;
  const std::uint64_t to = walk::lowest_sp(frame_.registers, step.caller);
  if (!scratch_->progress.allows(from, to, step.caller.pc() == frame_.pc()))
    return ended(WalkEnd::kNoProgress, Error{ErrorCode::kMalformed, "stack does not move", pc, to});
  scratch_->lowest = to;
  ++frames_;
  ++scratch_->since_exact;
  frame_.registers = step.caller;
  keep_thread(frame_.registers, *scratch_);
  frame_.saved = step.saved;
  frame_.origin = step.origin;
  frame_.signal_frame = step.signal_frame;
  frame_.certainty = step.certainty;
  if (step.certainty >= FrameCertainty::kChained && step.certainty > certainty_) guess_ = step.caller.pc().value();
  certainty_ = std::max(certainty_, step.certainty);
  set_module(step.find_module(*space_, *scratch_, true));
  if (step.signal_frame) {
    scratch_->exact = frame_.registers;
    scratch_->since_exact = 0;
  }
  return true;
}

}  // namespace windlass
