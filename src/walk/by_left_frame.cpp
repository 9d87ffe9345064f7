// Code that a function has jumped to, with that function's frame still there: Haskell's, as GHC compiles it. It has no
// unwind information, keeps a stack of its own at rbp, and goes on by jumps. rsp stays where StgRun has put it, but
// around calls of C. So each instruction has the same caller: the code behind the call of StgRun.
//
// A row of StgRun, from its jump on, says where that is: the return address stands far above rsp (16,432 bytes in
// GHC 9.0). It is believed if a direct call of that function stands in front of it.
//
// GHC: rts/StgCRun.c (StgRun, RESERVED_C_STACK_BYTES), compiler/GHC/CmmToAsm/X86/CodeGen.hs (calls of C).
#include <algorithm>
#include <optional>
#include <span>

#include "flow/stack_effect.h"
#include "flow/synthesis.h"
#include "walk/step_context.h"

namespace windlass::walk {
namespace {

constexpr std::uint64_t kMostRoom = 32 << 10;  // from rsp to the return address
constexpr std::uint64_t kPage = 4096;

// How far above the return address's place is from sp in code that a function has left its frame to: what the
// function's last row says. 0: it has no such row.
std::uint64_t room_of(const Module& module, std::uint64_t function, FrameRow& row) {
  const auto found = module.function_at(function);
  if (!found || found->begin != function || !module.row_at(found->end - 1, row)) return 0;
  if (!row.cfa.is_at(x86_64::kRsp) || !row.return_address.is(RegisterRule::kAtCfa)) return 0;
  const std::int64_t room = std::int64_t{row.cfa.offset()} + row.return_address.offset();
  return row.cfa.offset() >= 0 && row.return_address.offset() > 0 ? static_cast<std::uint64_t>(room) : 0;
}

// The frame whose return address is at `place`.
bool by_place(const StepContext& context, FrameRow row, std::uint64_t place, Step& step) {
  const std::uint64_t cfa = place - static_cast<std::uint64_t>(std::int64_t{row.return_address.offset()});
  row.cfa = CfaRule::at(x86_64::kRsp, static_cast<std::int32_t>(cfa - context.frame.registers.sp()));
  row.registers.erase(x86_64::kRsp);
  Step trial;
  apply_row(context, row, FrameOrigin::kSynthesis, trial);
  if (!trial.status.ok()) return false;
  trial.caller.set_sp(place + sizeof place);
  if (!accept(context, trial)) return false;
  trial.certainty = FrameCertainty::kChecked;
  step = trial;
  return true;
}

// How many bytes the code at the pc has on the stack of what it has pushed for a call of C: what it takes off up to the
// next jump. Nothing for code that returns, which Haskell's does not.
std::optional<std::uint64_t> pushed_at(const StepContext& context) {
  constexpr std::size_t kMostCode = 256;
  using Kind = flow::StackEffect::Kind;
  const std::uint64_t pc = context.frame.pc().value();
  std::uint8_t code[kMostCode];
  const std::size_t size = std::min<std::uint64_t>(sizeof code, context.module->info().end - pc);
  if (!read_code(context, pc, code, size)) return std::nullopt;
  flow::StraightCode line(ByteView(std::span<const std::uint8_t>(code, size)), pc, size);
  std::int64_t taken = 0;
  while (const auto effect = line.next()) {
    switch (effect->kind) {
      case Kind::kMove:
      case Kind::kPush:
      case Kind::kPop: taken += effect->delta; break;
      case Kind::kSet:
      case Kind::kUnknown:
      case Kind::kReturn: return std::nullopt;
      case Kind::kJump: return taken >= 0 ? std::optional(static_cast<std::uint64_t>(taken)) : std::nullopt;
      default: break;
    }
  }
  return taken == 0 ? std::optional<std::uint64_t>(0) : std::nullopt;
}

// Looks from `begin` bytes above `sp` up to `end`. `room`: where the frame's return address was. Farther away than its
// row says, it is another frame's: that of Haskell's code which has called C.
bool look_up(const StepContext& context, const flow::CodeSource& source, std::uint64_t sp, std::uint64_t begin,
             std::uint64_t end, Step& step, std::uint64_t& room) {
  const Module& module = *context.module;
  for (std::uint64_t place = sp + begin; place < sp + end; place += sizeof place) {
    std::uint64_t address = 0;
    if (!context.space.memory().read(place, &address, sizeof address)) {  // a page of the room that was never used
      place = (place | (kPage - 1)) + 1 - sizeof place;
      continue;
    }
    if (address <= module.info().begin || address >= module.info().end) continue;
    const std::uint64_t target = flow::direct_call_target(source, address);
    FrameRow row;
    room = place - sp;
    if (target != 0 && room != 0 && room_of(module, target, row) == room && by_place(context, row, place, step))
      return true;
  }
  return false;
}

// Does an address of the module lie where the return address may be, with what may have been pushed since?
bool may_be_left(const StepContext& context, std::uint64_t room) {
  constexpr std::uint64_t kMostPushed = 32;  // words
  const ModuleInfo& range = context.module->info();
  std::uint64_t words[kMostPushed];
  const std::uint64_t place = context.frame.registers.sp() + room;
  if (!context.space.memory().read(place, words, sizeof words)) return true;  // near the end of the stack: look
  return std::ranges::any_of(words, [&](std::uint64_t word) { return word > range.begin && word < range.end; });
}

}  // namespace

bool by_left_frame(const StepContext& context, Step& step) {
  const Module* module = context.module;
  if (context.space.architecture() != Architecture::kX86_64 || module == nullptr || module->generated() ||
      module->is_windows() || !module->has_range() || module->id() == 0 || !context.frame.registers.has_sp())
    return false;
  LeftFrames::Of& known = context.scratch.left_frames.of(module->id());
  const bool limited = context.options.max_followed != flow::Budget::kUnlimited;
  if (known.room == 0 ? limited : !may_be_left(context, known.room)) return false;
  if (FrameRow row; module->row_at(context.frame.pc().lookup(), row)) return false;
  if (known.room == 0 && !known.may_look()) return false;
  const auto pushed = pushed_at(context);
  if (!pushed) return false;
  return with_code(context, [&](const flow::CodeSource& source) {
    std::uint64_t room = known.room;
    const std::uint64_t sp = context.frame.registers.sp() + *pushed, end = room != 0 ? room + 1 : kMostRoom;
    const bool found = look_up(context, source, sp, room, end, step, room);
    if (found) known.room = room;
    return found;
  });
}

}  // namespace windlass::walk
