#include "windlass/managed/explicit_frame.h"

#include <bit>
#include <random>

namespace windlass::managed {

std::string_view kind_name(FrameKind kind) {
  switch (kind) {
    case FrameKind::kInlinedCall: return "inlined call";
    case FrameKind::kHelper: return "helper";
    case FrameKind::kCallback: return "callback";
    case FrameKind::kTransition: return "transition";
    case FrameKind::kFaulting: return "faulting";
    case FrameKind::kHijacked: return "hijacked";
    case FrameKind::kRedirected: return "redirected";
    case FrameKind::kTailCall: return "tail call";
    case FrameKind::kExceptionFilter: return "exception filter";
    case FrameKind::kDebuggerMarker: return "debugger marker";
    case FrameKind::kFunctionEvaluation: return "function evaluation";
    case FrameKind::kUser: break;
  }
  return "user";
}

namespace {
constexpr std::uint64_t kAllSlots = (std::uint64_t{1} << Registers::kSlots) - 1;  // what is read may be anything
}

void SavedContext::set(const Registers& registers) {
  known = registers.known_slots();
  return_address = registers.pc().is_return_address() ? 1 : 0;
  for (std::uint64_t rest = known; rest != 0; rest &= rest - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(rest));
    value[slot] = registers.get_slot(slot);
  }
}

Registers SavedContext::registers(Architecture architecture) const {
  Registers registers(architecture);
  for (std::uint64_t rest = known & kAllSlots; rest != 0; rest &= rest - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(rest));
    registers.set_slot(slot, value[slot]);
  }
  const std::uint64_t pc = registers.get_slot(Registers::pc_number(architecture));
  if (registers.has_slot(Registers::pc_number(architecture)))
    registers.set_pc(return_address != 0 ? CodeAddress::return_address(pc) : CodeAddress::instruction(pc));
  return registers;
}

FrameList::FrameList() {
  static const std::uint64_t seed = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  cookie = seed;
}

namespace {

bool is_kind(std::uint16_t kind) {
  return kind <= static_cast<std::uint16_t>(FrameKind::kFunctionEvaluation) ||
         kind >= static_cast<std::uint16_t>(FrameKind::kUser);
}

}  // namespace

Expected<FrameView> read_frame(const Memory& memory, std::uint64_t address, const std::uint64_t* cookie) {
  if (address % alignof(ExplicitFrame) != 0)
    return fail(ErrorCode::kMalformed, "explicit frame is not aligned", address);
  ExplicitFrame frame;
  if (!memory.read(address, &frame, sizeof frame))
    return fail(ErrorCode::kUnreadable, "explicit frame is not readable", address, sizeof frame);
  if (cookie != nullptr && (frame.cookie ^ address) != *cookie)
    return fail(ErrorCode::kMalformed, "explicit frame's cookie is wrong", address, frame.cookie);
  if (!is_kind(frame.kind) || frame.form > static_cast<std::uint8_t>(FrameForm::kLazy))
    return fail(ErrorCode::kMalformed, "explicit frame is of no kind that there is", address, frame.kind);
  if (frame.next <= address)
    return fail(ErrorCode::kMalformed, "explicit frame's next one lies below it", address, frame.next);
  FrameView view{.address = address,
                 .next = frame.next,
                 .kind = static_cast<FrameKind>(frame.kind),
                 .form = static_cast<FrameForm>(frame.form),
                 .attributes = frame.attributes,
                 .reference_count = frame.reference_count,
                 .references = frame.references,
                 .user = frame.user};
  const std::uint64_t rest = address + sizeof frame;
  if (view.form == FrameForm::kCallSite) {
    if (!memory.read(rest, &view.site, sizeof view.site))
      return fail(ErrorCode::kUnreadable, "explicit frame's call site is not readable", rest, sizeof view.site);
  } else if (view.form != FrameForm::kMarker) {
    view.context_at = rest;
  }
  return view;
}

}  // namespace windlass::managed
