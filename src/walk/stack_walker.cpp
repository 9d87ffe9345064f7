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
    case WalkEnd::kGuessed: return "outermost frame is a guess";
    case WalkEnd::kForeign: return "code of another machine";
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

void StackWalker::restart(const Registers& registers) {
  frame_ = Frame{};
  frame_.registers = registers;
  scratch_->code.enter(walk::code_grace_period());
  walk::correct_first_pc(*space_, frame_.registers);
  module_ = space_->find(frame_.pc().lookup());
  frame_.module = module_ != nullptr ? &module_->info() : nullptr;
  frames_ = 1;
  end_ = WalkEnd::kRunning;
  error_ = {};
  scratch_->progress = {};
}

bool StackWalker::step_by_kept_row() {
  const CodeAddress pc = frame_.pc();
  if (module_ == nullptr || !pc.is_return_address() || !frame_.registers.has_sp()) return false;
  const walk::CallSiteRow* row = scratch_->rows.find(module_->id(), pc.value());
  if (row == nullptr || !walk::apply_in_place(*row, *space_, frame_, module_)) return false;
  scratch_->progress.moved_up();
  return true;
}

bool StackWalker::step() {
  if (end_ != WalkEnd::kRunning) return false;
  const auto ended = [this](WalkEnd end, const Error& error) {
    end_ = end;
    error_ = error;
    return false;
  };
  const std::uint64_t pc = frame_.pc().value();
  if (frames_ >= options_.max_frames) return ended(WalkEnd::kLimit, Error{ErrorCode::kLimit, "frame limit", pc});
  if (step_by_kept_row()) {
    ++frames_;
    return true;
  }
  walk::Step step;
  walk::find_caller(*space_, frame_, module_, options_, *scratch_, step);
  if (!step.status.ok()) return ended(step.status.end, step.status.error);
  const std::uint64_t from = frame_.registers.has_sp() ? frame_.sp() : scratch_->lowest;
  const std::uint64_t to = walk::lowest_sp(frame_.registers, step.caller);
  if (!scratch_->progress.allows(from, to, step.caller.pc() == frame_.pc()))
    return ended(WalkEnd::kNoProgress, Error{ErrorCode::kMalformed, "stack does not move", pc, to});
  scratch_->lowest = to;
  ++frames_;
  frame_.registers = step.caller;
  frame_.saved = step.saved;
  frame_.origin = step.origin;
  frame_.signal_frame = step.signal_frame;
  module_ = step.find_module(*space_);
  frame_.module = module_ != nullptr ? &module_->info() : nullptr;
  return true;
}

}  // namespace windlass
