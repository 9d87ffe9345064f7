// Epilogues. Version 1's are found by their instructions wherever the thread stands: at most one that frees, then pops,
// then the return or jump. Version 2 says where the pops begin and no more. Before that the prologue's codes must
// still hold: rsp (or the frame pointer) not moved, and every save not yet below rsp, where anything may overwrite it.
#include <algorithm>

#include "winx64/frame_codes.h"
#include "winx64/registers.h"

namespace windlass::winx64 {
namespace {

constexpr std::uint32_t kLongestInstruction = 15;

// What one instruction takes back.
struct Step {
  std::uint32_t end = 0;
  RegisterNumber pop = prologue::kNoRegister;  // it is one pop of this register
  bool release = false;                        // it moves rsp and does nothing else
  bool body_holds = false;                     // behind it
};

bool body_holds(const BodyFrame& frame, const FrameState& state) {
  if (!frame.by_pointer) return state.depth() == frame.state.depth();
  const auto is_kept = [&](const FrameState::Saved& saved) {
    return static_cast<std::int64_t>(saved.depth) <= static_cast<std::int64_t>(state.depth());
  };
  return state.pointer() && std::all_of(frame.state.saved().begin(), frame.state.saved().end(), is_kept);
}

Step step_of(const prologue::Epilogue& epilogue, std::size_t first, std::size_t last) {
  Step step{epilogue.undone[first].end, prologue::kNoRegister, true, false};
  for (std::size_t i = first; i < last; ++i) {
    if (std::holds_alternative<prologue::Save>(epilogue.undone[i].action)) step.release = false;
  }
  const auto* save = std::get_if<prologue::Save>(&epilogue.undone[first].action);
  if (last == first + 1 && save != nullptr && is_push(*save)) step.pop = save->reg;
  return step;
}

std::uint32_t pop_size(RegisterNumber reg) { return instruction_number(reg) >= 8 ? 2 : 1; }

// Will decoding from behind `steps[at]` on find the rest?
bool is_recognised(const std::vector<Step>& steps, std::size_t at) {
  std::size_t i = at + 1;
  if (i < steps.size() && steps[i].release) ++i;
  return std::all_of(steps.begin() + static_cast<std::ptrdiff_t>(i), steps.end(),
                     [](const Step& step) { return step.pop != prologue::kNoRegister; });
}

Expected<std::optional<EpilogueV2>> describe(const prologue::Epilogue& epilogue, const BodyFrame& frame,
                                             const std::vector<Step>& steps) {
  const std::size_t count = frame.pops.size();
  const auto refuse = [&](std::uint32_t where) {
    return fail(ErrorCode::kUnsupported,
                "version 2 describes epilogues that free the frame at once, then pop all that was pushed, then leave",
                where, count);
  };
  if (steps.size() < count) return refuse(epilogue.begin);
  const std::size_t first = steps.size() - count;
  std::uint32_t at = steps.back().end;
  for (std::size_t i = 0; i < count; ++i) {
    if (steps[first + i].pop != frame.pops[i]) return refuse(steps[first + i].end);
    const std::uint32_t begin = steps[first + i].end - pop_size(frame.pops[i]);
    if (i == 0) at = begin;
    if (i != 0 && begin != steps[first + i - 1].end) return refuse(steps[first + i].end);
  }
  for (std::size_t i = 0; i < first; ++i) {
    if (!steps[i].body_holds && (i + 1 != first || steps[i].end != at)) return refuse(steps[i].end);
  }
  return EpilogueV2{epilogue.begin, at, steps.back().end, epilogue.end};
}

}  // namespace

Expected<std::optional<EpilogueV2>> judge_epilogue(const prologue::Epilogue& epilogue, const BodyFrame& frame,
                                                   std::uint32_t version) {
  FrameState state = frame.state;
  std::vector<Step> steps;
  std::optional<std::size_t> first_gone;  // the first instruction behind which the body's codes are wrong
  for (std::size_t i = 0; i < epilogue.undone.size();) {
    std::size_t last = i;
    for (; last < epilogue.undone.size() && epilogue.undone[last].end == epilogue.undone[i].end; ++last) {
      if (const auto ok = state.undo(epilogue.undone[last]); !ok) return std::unexpected(ok.error());
    }
    steps.push_back(step_of(epilogue, i, last));
    steps.back().body_holds = body_holds(frame, state);
    if (!steps.back().body_holds && !first_gone) first_gone = steps.size() - 1;
    i = last;
  }
  if (!first_gone) return std::nullopt;
  if (!state.is_entry()) {
    if (steps[*first_gone].end == frame.part_end) return std::nullopt;
    return fail(ErrorCode::kUnsupported, "a part that moves rsp is left at its end or with the function",
                steps[*first_gone].end);
  }
  if (epilogue.end - steps.back().end > kLongestInstruction || epilogue.end == steps.back().end)
    return fail(ErrorCode::kUnsupported, "behind an epilogue's last pop there is one instruction, which leaves",
                steps.back().end, epilogue.end - steps.back().end);
  if (version == 2) return describe(epilogue, frame, steps);
  if (state.machine_frame())
    return fail(ErrorCode::kUnsupported, "version 1 knows no epilogue that ends with iretq", epilogue.begin);
  if (!is_recognised(steps, *first_gone))
    return fail(ErrorCode::kUnsupported,
                "version 1 knows epilogues by their instructions: restores, one that frees the frame, pops, return",
                steps[*first_gone].end);
  return std::nullopt;
}

}  // namespace windlass::winx64
