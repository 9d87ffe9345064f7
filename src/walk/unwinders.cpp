#include "walk/unwinders.h"

#include <span>

#include "walk/inside.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

// "Can you unwind from here?" True where `step` says how the walk goes on, or that and why it ends.
struct Unwinder {
  std::string_view name;
  bool (*ask)(const StepContext& context, Step& step);
  FrameOrigin origin;  // of the frames it finds, where it does not say otherwise
};

constexpr Unwinder kByCfi{"call frame information", by_cfi, FrameOrigin::kCfi};
constexpr Unwinder kBySignalTrampoline{"signal trampoline", by_signal_trampoline, FrameOrigin::kSynthesis};
constexpr Unwinder kByCode{"code", by_synthesis, FrameOrigin::kSynthesis};
constexpr Unwinder kByThreadBegin{"thread's first instruction", by_thread_begin, FrameOrigin::kSynthesis};
constexpr Unwinder kByThreadStart{"thread start", by_thread_start, FrameOrigin::kSynthesis};
constexpr Unwinder kByEnteredFrame{"frame of the code that enters", by_entered_frame, FrameOrigin::kSynthesis};
constexpr Unwinder kByPresentJump{"code where its jumps lead now", by_present_jump, FrameOrigin::kSynthesis};
constexpr Unwinder kByFramePointer{"frame pointer", by_frame_pointer, FrameOrigin::kFramePointer};
constexpr Unwinder kByProcessStart{"process start", by_process_start, FrameOrigin::kSynthesis};
constexpr Unwinder kByLeaf{"leaf", by_leaf, FrameOrigin::kLeaf};

// What is in a file, or mapped from one. That a process begins here is seen on the stack, and comes before a frame
// pointer of 0, which proves nothing.
constexpr Unwinder kOfElf[] = {kByCfi,  kBySignalTrampoline, kByThreadBegin,  kByThreadStart,
                               kByCode, kByProcessStart,     kByFramePointer, kByLeaf};
constexpr Unwinder kOfWindows[] = {{"function table", by_pdata, FrameOrigin::kPdata},
                                   kBySignalTrampoline,
                                   kByCode,
                                   kByProcessStart,
                                   kByFramePointer,
                                   kByLeaf};
// Code made at run time: no process begins there. Whoever made it may have described it.
constexpr Unwinder kOfGenerated[] = {kByCfi,         kBySignalTrampoline, kByCode, kByEnteredFrame,
                                     kByPresentJump, kByFramePointer,     kByLeaf};
// A pc in nothing known: a trampoline of a kernel without a vdso, or a jump through a bad pointer.
constexpr Unwinder kOfNowhere[] = {kBySignalTrampoline, kByLeaf};

std::span<const Unwinder> unwinders_of(const Module* module) {
  if (module == nullptr) return kOfNowhere;
  if (module->is_windows()) return kOfWindows;
  if (module->generated()) return kOfGenerated;
  return kOfElf;
}

// A runtime's code is left by the frames that the runtime lists. Where another one leads to code of a file, frames have
// been skipped: what follows is a guess.
void judge_exit(const StepContext& context, Step& step) {
  if (!context.in_generated_code() || !context.module->is_exact() || !step.status.ok() || step.signal_frame) return;
  const Module* to = step.find_module(context.space, context.scratch, true);
  if (to != nullptr && !to->generated() && !context.module->may_be_outermost(context.frame.pc().lookup()))
    step.certainty = FrameCertainty::kGuessed;
}

}  // namespace

Scratch::Scratch() : synthesis(flow::make_scratch()) {}
Scratch::~Scratch() { flow::free_scratch(synthesis); }

bool UndescribedCode::holds(std::uint64_t address, std::size_t size) const {
  for (unsigned i = 0; i < used_; ++i)
    if (known_[i].holds(address, size)) return true;
  return false;
}

Executable UndescribedCode::ask(std::uint64_t address, flow::Budget& budget) {
  constexpr std::uint32_t kCost = 64;  // a file of /proc is opened, asked and closed
  if (holds(address, 1)) return Executable::kYes;
  if (is_null_page(address)) return Executable::kNo;  // vm.mmap_min_addr: where bad pointers lead costs no question
  if (blind_) return Executable::kUnknown;
  if (asked_ == kMost || !budget.spend(kCost)) return Executable::kNo;
  ++asked_;
  const Executable answer = find_own_executable(address, known_[used_]);
  if (answer == Executable::kYes) ++used_;
  blind_ = answer == Executable::kUnknown;
  return answer;
}

const Module* find_code(const AddressSpace& space, Scratch& scratch, std::uint64_t address, bool ask) {
  if (const Module* module = module_at(space, address); module != nullptr) return module;
  if (!space.is_own_process()) return nullptr;
  if (const Module* described = find_own_table_code(address); described != nullptr) return described;
  const bool found = ask ? scratch.undescribed.ask(address, flow::budget_of(*scratch.synthesis)) == Executable::kYes
                         : scratch.undescribed.holds(address, 1);
  return found ? &undescribed_code() : nullptr;
}

void find_caller(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
                 Scratch& scratch, Step& step) {
  const std::uint64_t pc = frame.pc().value();
  if (module != nullptr && !module->runs_on(space.architecture())) {
    step.status = {WalkEnd::kForeign, Error{ErrorCode::kUnsupported, "code of another machine", pc}};
    return;
  }
  const StepContext context{space, frame, module, options, scratch};
  scratch.register_lost = false;
  StepStatus bad = step.status;  // damaged unwind information is worth more than "nothing knows this code"
  for (const Unwinder& unwinder : unwinders_of(module)) {
    step.origin = unwinder.origin;
    if (unwinder.ask(context, step)) return judge_exit(context, step);
    if (bad.end == WalkEnd::kNoRow) bad = step.status;
  }
  step.status = bad;
  if (module == nullptr)
    step.status = {WalkEnd::kNoModule, Error{ErrorCode::kNotFound, "pc lies in no module", pc}};
  else if (step.status.error.where == 0)
    step.status.error.where = pc;
}

}  // namespace windlass::walk
