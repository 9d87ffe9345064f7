// The question that each unwinder is asked, and helpers that the unwinders share.
#pragma once

#include <optional>

#include "flow/synthesis.h"
#include "walk/inside.h"
#include "walk/unwinders.h"

namespace windlass::walk {

struct StepContext {
  const AddressSpace& space;
  const Frame& frame;
  const Module* module;  // what contains the frame's pc; may be null
  const WalkOptions& options;
  Scratch& scratch;
  // Before any row is looked up, so that one that is taken away meanwhile is not kept as what is there then.
  const std::uint64_t rows_id = module != nullptr ? module->rows_id() : 0;

  // Code made at run time is always called by something: a stack does not end there.
  [[nodiscard]] bool in_generated_code() const { return module != nullptr && module->generated(); }
  // The generated code was never registered, so more code like it may be anywhere.
  [[nodiscard]] bool in_undescribed_code() const { return module == &undescribed_code(); }
  // sp, or the lowest that it can be.
  [[nodiscard]] std::uint64_t lowest() const {
    return frame.registers.has_sp() ? frame.registers.sp() : scratch.lowest;
  }
};

void apply_row(const StepContext& context, const FrameRow& row, FrameOrigin origin, Step& step);

// The code's own bytes: the process's memory, or, where a dump left them out, the module's file.
[[nodiscard]] bool read_code(const AddressSpace& space, std::uint64_t address, void* to, std::size_t size);

// The same for the frame in context, whose own module is there to be read.
[[nodiscard]] bool read_code(const StepContext& context, std::uint64_t address, void* to, std::size_t size);

// AArch64: the two instructions that return from a signal handler. A return address points at the first one.
[[nodiscard]] bool at_signal_trampoline(const AddressSpace& space, std::uint64_t pc);

// Checks that the step found a caller: the pc is in known code, and sp is an aligned address of user space. If not, the
// step's status says why. True for a step that failed or ended the walk.
//
// A trusted step, for example by unwind information at a call, may lead to code that only the kernel knows. If the
// kernel may not be asked, no map has the code. Such code may in turn lead to more of its kind.
enum class Trust : bool { kNone, kFull };
[[nodiscard]] bool accept(const StepContext& context, Step& step, Trust trust = Trust::kNone);

// Was the return address found in memory that the walk writes?
[[nodiscard]] bool in_what_is_written(const StepContext& context, const Step& step);

// Can `trial` be the caller that the code gives? Its pc must be behind a call, or at the start of code that is never
// called (a signal trampoline). And it must not be lower on the stack.
[[nodiscard]] bool believable(const StepContext& context, const FrameRow& row, Step& trial,
                              const flow::CodeSource& source);

// Is the caller farther away than a frame can be large?
[[nodiscard]] bool leads_to_other_stack(const StepContext& context, const Step& trial);

// Code without unwind information that has replaced the stack, and returns by the frame pointer to what has called it
// on the old one (SBCL's call into Lisp in the main thread). Only where unwind information has given the frame pointer,
// and within one file. The way out must be certain, which is not asked here.
[[nodiscard]] bool returns_to_other_stack(const StepContext& context, const FrameRow& row, Step& trial,
                                          const flow::CodeSource& source);

// Could the frame pointer point to a frame record: is what it leads to a caller?
[[nodiscard]] bool points_to_frame(const StepContext& context);

// What by_call_site() went by.
struct CallCheck {
  flow::CallSite site = flow::CallSite::kNone;
  FrameRow way_in;         // of the site, if it has one
  bool is_way_in = false;  // which leads to the caller
};

// How certain a caller is that no unwind information describes: does the call before its pc lead to the function at
// hand? An indirect call may lead anywhere: it fits where the code was followed or uses its frame pointer. Where the
// code does not say another frame, and a frame record has led to the caller, the caller is chained.
[[nodiscard]] FrameCertainty by_call_site(const StepContext& context, Step& step, bool follows_code);
[[nodiscard]] FrameCertainty by_call_site(const StepContext& context, Step& step, bool follows_code, CallCheck& check);

// That the frame at hand is the outermost one is likely, and no more. kChained where a chain of frame pointers ends.
[[nodiscard]] StepStatus guessed_end(const StepContext& context);

// Is the stack in the memory that `code` is in? An executable stack (GCC's nested functions) holds addresses of its
// own; a return address there must stand behind a call.
[[nodiscard]] bool holds_stack(const StepContext& context, const Module& code);

// The row that unwind information has for `address` in the middle of a function, which makes its frame itself. False:
// there is none, or a function begins there.
[[nodiscard]] bool row_inside_function(const StepContext& context, std::uint64_t address, FrameRow& row);

// The row at `pc` by its whole function, which is kept where the module says so. False: nothing is proved there. Not of
// the own process, whose walks have no time and may not allocate. `recorded`: the source as who keeps the answer sees
// it, for code that may change.
[[nodiscard]] bool row_of_whole_function(const StepContext& context, const flow::CodeSource& source,
                                         const flow::CodeSource& recorded, CodeAddress pc, FrameRow& row);

// Calls use(source): the code, seen from the frame in context.
template <typename Use>
auto with_code(const StepContext& context, Use&& use) {
  const AddressSpace& space = context.space;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    return read_code(context, address, to, size);
  };
  const auto kind = [&](std::uint64_t address) {
    const Module* at = find_code(space, context.scratch, address, context.in_undescribed_code());
    if (at == nullptr) return flow::CodeKind::kNoCode;
    return at->generated() && !holds_stack(context, *at) ? flow::CodeKind::kGenerated : flow::CodeKind::kFile;
  };
  const auto function_start = [&](std::uint64_t address) {
    const Module* at = module_at(space, address);
    return at != nullptr ? at->function_start(address) : 0;
  };
  const flow::CodeSource* self = nullptr;
  const auto can_be = [&](const FrameRow& row) {
    constexpr std::uint32_t kCost = 8;  // the stack is read, and who is said to be the caller is looked for
    if (!flow::budget_of(*context.scratch.synthesis).spend(kCost)) return false;
    Step trial;
    apply_row(context, row, FrameOrigin::kSynthesis, trial);
    context.scratch.register_lost |= trial.status.end == WalkEnd::kLost;
    if (trial.status.end == WalkEnd::kComplete && context.in_generated_code()) return false;
    return believable(context, row, trial, *self) || returns_to_other_stack(context, row, trial, *self);
  };
  const auto has_caller = [&](const FrameRow& row) {
    Step trial;
    apply_row(context, row, FrameOrigin::kSynthesis, trial);
    return trial.status.ok();
  };
  const std::uint64_t entry = context.module != nullptr ? context.module->entry_point() : 0;
  const auto inside = [&](std::uint64_t address, FrameRow& row) { return row_inside_function(context, address, row); };
  const auto whole = [&](const flow::CodeSource& code, CodeAddress pc, FrameRow& row) {
    return row_of_whole_function(context, *self, code, pc, row);
  };
  const flow::CodeSource source{space.architecture(), read,   kind, can_be, function_start, entry,
                                has_caller,           inside, whole};
  self = &source;
  return use(source);
}

// ---- following code -----------------------------------------------------------------------------------------------
// flow/synthesis.h's questions about the frame in context. What they come to is kept where the module says so.

[[nodiscard]] Expected<flow::Synthesis> follow_code(const StepContext& context);
// The same by the frame's registers, where jumps lead now. Not kept.
[[nodiscard]] Expected<flow::Synthesis> follow_present_code(const StepContext& context);
// Of another place, as seen from that frame.
[[nodiscard]] Expected<flow::Synthesis> follow_code_at(const StepContext& context, CodeAddress pc);
[[nodiscard]] Expected<flow::Synthesis> followed_way_in(const StepContext& context);
[[nodiscard]] std::optional<FrameRow> contradiction(const StepContext& context, const FrameRow& row);
[[nodiscard]] Expected<FrameRow> followed_to_return(const StepContext& context);
[[nodiscard]] flow::CallSite followed_call(const StepContext& context, CodeAddress caller, FrameRow& way_in);

// Registers that the calling convention preserves and the row has no rule for become undefined: the code may use them.
void lose_unsaved(FrameRow& row, Architecture architecture);

// Does the row describe a function from its first instruction on as having a frame? Such code is jumped into.
[[nodiscard]] bool begins_with_frame(const StepContext& context, const FrameRow& row);

// ---- the unwinders ------------------------------------------------------------------------------------------------
// True where `step` says how the walk goes on or ends.

bool by_cfi(const StepContext& context, Step& step);                           // by_cfi.cpp
bool by_landing(const StepContext& context, const FrameRow& row, Step& step);  // by_landing.cpp
bool by_pdata(const StepContext& context, Step& step);      // by_pdata.cpp: Windows' unwind information
bool by_callback(const StepContext& context, Step& step);   // by_callback.cpp: from Wine's mark
bool by_synthesis(const StepContext& context, Step& step);  // by_code.cpp
bool by_described_entry(const StepContext& context, const FrameRow& row, Step& step);  // by_entered_frame.cpp
bool by_entered_frame(const StepContext& context, Step& step);  // by_entered_frame.cpp: LuaJIT's traces
bool by_left_frame(const StepContext& context, Step& step);     // by_left_frame.cpp: Haskell's code
bool by_present_jump(const StepContext& context, Step& step);   // by_code.cpp: PHP's and Ruby's code
bool by_leaf(const StepContext& context, Step& step);           // by_code.cpp
bool by_thread_begin(const StepContext& context, Step& step);   // by_thread_start.cpp
// Does by_thread_begin() go by rax here?
[[nodiscard]] bool may_begin_thread(const StepContext& context);
bool by_thread_start(const StepContext& context, Step& step);   // by_thread_start.cpp
bool by_frame_pointer(const StepContext& context, Step& step);  // by_frame_pointer.cpp
// The same with what by_call_site() is told, and what it went by.
bool by_frame_pointer(const StepContext& context, Step& step, bool follows_code, CallCheck& check);
// What by_frame_pointer() applies. Registers that the function may have saved are lost.
[[nodiscard]] FrameRow frame_pointer_row(Architecture architecture);
bool by_signal_trampoline(const StepContext& context, Step& step);  // by_start_and_signal.cpp
bool by_process_start(const StepContext& context, Step& step);      // by_start_and_signal.cpp
bool by_arguments(const StepContext& context, Step& step);          // by_start_and_signal.cpp: a process's, at sp

}  // namespace windlass::walk
