// What Wine's Unix side calls back: from the program's stack to the Unix side's, whose code called back. Why this is
// the frame, and the only one: bpf/windlass_wine_layout.h; the kernel side goes by it, too (bpf/windlass_wine.h).
#include "base/registers.h"
#include "walk/step_context.h"
#include "windlass_wine_layout.h"

namespace windlass::walk {
namespace {

// The Unix side's frame for the callback whose arguments these are; 0: there is none, or it cannot be read.
std::uint64_t find_frame(const Memory& memory, std::uint64_t gs_base, std::uint64_t arguments, std::uint64_t length) {
  std::uint64_t frame = 0, below = 0, rsp = 0;
  if (gs_base == 0 || !memory.read(gs_base + WL_WINE_TEB_FRAME, &frame, sizeof frame)) return 0;
  for (unsigned i = 0; i < WL_WINE_CALLBACKS; ++i, frame = below) {
    if (!memory.read(frame + WL_WINE_FRAME_BELOW, &below, sizeof below) || below == 0 ||
        !memory.read(below + WL_WINE_FRAME_RSP, &rsp, sizeof rsp))
      return 0;
    if (((rsp - length) & ~std::uint64_t{15}) == arguments) return frame;
  }
  return 0;
}

}  // namespace

// `step` has the mark for a caller: its sp is behind that.
bool by_callback(const StepContext& context, Step& step) {
  if (context.space.architecture() != Architecture::kX86_64 || !step.status.ok() ||
      step.caller.pc().value() != WL_WINE_MARK)
    return false;
  const Memory& memory = context.space.memory();
  const std::uint64_t sp = step.caller.sp();
  struct {
    std::uint64_t number, arguments, length, zero;
  } call;
  static_assert(sizeof call == WL_WINE_CALL_BYTES);
  if (!memory.read(sp, &call, sizeof call) || call.arguments != sp + sizeof call) return false;
  const std::uint64_t frame = find_frame(memory, context.scratch.gs_base.value_or(0), call.arguments, call.length);
  std::uint64_t rbp = 0;
  if (frame == 0 || !memory.read(frame + WL_WINE_FRAME_SAVED, &rbp, sizeof rbp) ||
      ((rbp - WL_WINE_FRAME_ROOM) & ~std::uint64_t{63}) != frame)
    return false;
  // From WL_WINE_SAVED_BELOW below rbp on.
  constexpr RegisterNumber kSaved[] = {15, 14, 13, 12, x86_64::kRdi, x86_64::kRsi, x86_64::kRbx, x86_64::kRbp};
  const std::uint64_t saved_at = rbp - WL_WINE_SAVED_BELOW;
  std::uint64_t saved[std::size(kSaved) + 1];
  static_assert(sizeof saved == WL_WINE_SAVED_BELOW + 16);
  if (!memory.read(saved_at, saved, sizeof saved)) return false;
  Step found;
  found.caller = Registers(Architecture::kX86_64);
  for (std::size_t i = 0; i < std::size(kSaved); ++i) {
    found.caller.set(kSaved[i], saved[i]);
    found.saved.set(found.caller, kSaved[i], saved_at + 8 * i);
  }
  found.caller.set_sp(rbp + 16);
  found.caller.set_pc(CodeAddress::return_address(saved[std::size(kSaved)]));
  found.saved.set(found.caller, x86_64::kReturnAddress, rbp + 8);
  found.origin = FrameOrigin::kSynthesis;
  found.certainty = FrameCertainty::kDescribed;  // Wine's frame has one form
  found.status = {};
  if (!accept(context, found)) return false;
  step = found;
  return true;
}

}  // namespace windlass::walk
