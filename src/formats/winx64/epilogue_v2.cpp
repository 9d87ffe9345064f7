// Epilogues. Version 1's are found by their instructions wherever the thread stands: at most one that frees, then pops,
// then the return or jump. Version 2 says where the pops begin and no more. Before that the prologue's codes must
// still hold: rsp (or the frame pointer) not moved, and every save not yet below rsp, where anything may overwrite it.
#include <algorithm>

#include "formats/winx64/epilogue.h"
#include "formats/winx64/frame_codes.h"
#include "formats/winx64/instruction_length.h"
#include "formats/winx64/registers.h"

namespace windlass::winx64 {
namespace {

// That leaves: a jump through an import slot, marked by a REX.W.
constexpr std::uint32_t kLongestExit = 7;

// What one instruction takes back, but for a frame pointer that leaves rsp where it is.
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

Step step_of(std::uint32_t end, const std::vector<const prologue::Action*>& actions) {
  Step step{end, prologue::kNoRegister, true, false};
  for (const prologue::Action* action : actions) {
    if (std::holds_alternative<prologue::Save>(*action)) step.release = false;
  }
  const auto* save = actions.size() == 1 ? std::get_if<prologue::Save>(actions[0]) : nullptr;
  if (save != nullptr && is_push(*save)) step.pop = save->reg;
  return step;
}

// Will decoding from behind `steps[at]` on find the rest? One instruction behind the other, that is.
bool is_recognised(const std::vector<Step>& steps, std::size_t at) {
  constexpr std::uint32_t kLongestRelease = 8;  // lea rsp, [r12 + disp32]
  std::uint32_t behind = steps[at].end;
  std::size_t i = at + 1;
  if (i < steps.size() && steps[i].release && steps[i].pop == prologue::kNoRegister) {
    if (steps[i].end - behind > kLongestRelease) return false;
    behind = steps[i++].end;
  }
  for (; i < steps.size(); behind = steps[i++].end)
    if (steps[i].pop == prologue::kNoRegister || steps[i].end != behind + pop_size(steps[i].pop)) return false;
  return true;
}

// Does version 1 know what is between the pops and the epilogue's end for an exit? Where the code is not known: as far
// as its length tells.
bool is_exit(const prologue::Epilogue& epilogue, std::uint32_t exit, std::span<const std::byte> code) {
  if (code.empty()) return epilogue.end - exit <= kLongestExit;
  if (exit >= epilogue.end) return false;
  EpilogueMatch match;
  const ByteView rest(code.data() + exit, epilogue.end - exit);
  if (!match_epilogue(rest, 0, epilogue.end - exit, match) || match.step_count != 1) return false;
  if (instruction_length(rest) != rest.size()) return false;  // other code that is a leaf follows
  if (match.exit != EpilogueMatch::Exit::kJump) return true;
  const std::int64_t target = std::int64_t{exit} + match.target;
  return target < 0 || target >= static_cast<std::int64_t>(code.size());
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
  return EpilogueV2{epilogue.begin, at, steps.back().end, epilogue.end, {}};
}

// Other orders: GCC's, which pops behind a frame pointer what codes can only call saves, or `leave`. Where the rest is
// pops and the exit, an entry of its own has codes for just those.
std::optional<EpilogueV2> set_apart(const prologue::Epilogue& epilogue, const std::vector<Step>& steps,
                                    std::size_t first_gone) {
  const std::uint32_t begin = steps[first_gone].end;
  EpilogueV2 apart{epilogue.begin, begin, begin, epilogue.end, std::vector<RegisterNumber>()};
  for (std::size_t i = first_gone + 1; i < steps.size(); ++i) {
    if (steps[i].pop == prologue::kNoRegister || steps[i].end != apart.exit + pop_size(steps[i].pop))
      return std::nullopt;
    apart.exit = steps[i].end;
    apart.own_pops->push_back(steps[i].pop);
  }
  return apart;
}

}  // namespace

Expected<std::optional<EpilogueV2>> judge_epilogue(const prologue::Epilogue& epilogue, const BodyFrame& frame,
                                                   std::uint32_t version) {
  FrameState state = frame.state;
  std::vector<Step> steps;
  std::optional<std::size_t> first_gone;  // the first instruction behind which the body's codes are wrong
  for (std::size_t i = 0; i < epilogue.undone.size();) {
    const std::uint32_t end = epilogue.undone[i].end;
    std::vector<const prologue::Action*> actions;
    for (; i < epilogue.undone.size() && epilogue.undone[i].end == end; ++i) {
      const prologue::Op& op = epilogue.undone[i];
      // Behind what took something back, rsp is known, and may be where the frame pointer was set.
      const std::uint64_t depth = state.depth();
      const bool is_known = depth != frame.state.depth();
      if (const auto ok = state.undo(op); !ok) return Failure(ok.error());
      const bool moves = state.depth() != depth || !is_known;
      if (moves || !std::holds_alternative<prologue::SetFramePointer>(op.action)) actions.push_back(&op.action);
    }
    if (actions.empty()) continue;
    steps.push_back(step_of(end, actions));
    steps.back().body_holds = body_holds(frame, state);
    if (!steps.back().body_holds && !first_gone) first_gone = steps.size() - 1;
  }
  if (!first_gone) return std::nullopt;
  if (!state.is_entry()) {
    if (steps[*first_gone].end == frame.part_end) return std::nullopt;
    return fail(ErrorCode::kUnsupported, "a part that moves rsp is left at its end or with the function",
                steps[*first_gone].end);
  }
  // HotSpot's goes on behind its pops with a look for a safepoint, V8's jump to where a register says.
  const std::uint32_t exit = steps.back().end;
  const bool longer = epilogue.end - exit > kLongestExit;
  const bool unknown = version == 2 ? longer : !is_exit(epilogue, exit, frame.code);
  const bool runs_on = unknown && exit < epilogue.end && !state.machine_frame();
  if (auto apart = runs_on ? set_apart(epilogue, steps, *first_gone) : std::nullopt) {
    apart->runs_on = true;
    return apart;
  }
  if (epilogue.end == exit || (runs_on && (version == 2 || is_recognised(steps, *first_gone))))
    return fail(ErrorCode::kUnsupported, "behind an epilogue's last pop there is one instruction, which leaves", exit,
                epilogue.end - exit);
  if (version == 2) {
    auto described = describe(epilogue, frame, steps);
    if (described || state.machine_frame()) return described;
    const auto apart = set_apart(epilogue, steps, *first_gone);
    return apart ? Expected<std::optional<EpilogueV2>>(apart) : described;
  }
  if (state.machine_frame())
    return fail(ErrorCode::kUnsupported, "version 1 knows no epilogue that ends with iretq", epilogue.begin);
  if (!is_recognised(steps, *first_gone))
    return fail(ErrorCode::kUnsupported,
                "version 1 knows epilogues by their instructions: restores, one that frees the frame, pops, return",
                steps[*first_gone].end);
  return std::nullopt;
}

}  // namespace windlass::winx64
