#include "runtimes/hotspot/code_flow.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "runtimes/hotspot/code_map.h"

namespace windlass::runtimes::hotspot {
namespace {

using flow::StackEffect;
using Kind = StackEffect::Kind;
using Cfa = FrameState::Cfa;
using Place = FrameState::Place;

constexpr std::int32_t kSenderAt = -kWord;  // frame::interpreter_frame_sender_sp_offset * 8
constexpr RegisterNumber kRdx = 1, kR13 = 13;

// CFA = rsp + cfa + (rbx + 15 & -16), or rsp + cfa + rbx.
struct AboveRoom {
  static constexpr std::int32_t kMost = 512;  // cfa, in words of 8 bytes from 0 on
  std::uint8_t code[9];
};
constexpr auto kAboveRoom = [] {
  std::array<AboveRoom, 2 * AboveRoom::kMost / kWord> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool aligned = i >= all.size() / 2;
    const auto cfa = static_cast<unsigned>(i % (all.size() / 2) * kWord);
    all[i] = {{0x77, static_cast<std::uint8_t>(0x80 | (cfa & 0x7f)), static_cast<std::uint8_t>(cfa >> 7),  // breg7 cfa
               0x73, static_cast<std::uint8_t>(aligned ? 15 : 0),                                          // breg3 15
               static_cast<std::uint8_t>(aligned ? 0x40 : 0x31), 0x1f, 0x1a,  // lit16 neg and
               0x22}};                                                        // plus
  }
  return all;
}();

bool set_above_room(FrameRow& row, std::int32_t cfa, bool aligned) {
  if (cfa < 0 || cfa >= AboveRoom::kMost || cfa % kWord != 0) return false;
  const AboveRoom& found = kAboveRoom[static_cast<std::size_t>(cfa / kWord) + (aligned ? kAboveRoom.size() / 2 : 0)];
  row.expressions = ByteView(found.code, sizeof found.code);
  row.cfa = CfaRule::expression({0, sizeof found.code});
  return true;
}

// What the interpreter's frame says, where rbp is of a frame within it, as around calls of Shenandoah's barriers: rbp
// of the outer one is at [rbp].
void set_nested_sender(FrameRow& row) {
  static constexpr std::uint8_t kCode[] = {
      0x76, 0, 0x06, 0x38, 0x1c, 0x06,  // breg6 0, deref, lit8, minus, deref: the sender's slot
      0x76, 0, 0x06, 0x38, 0x22,        // breg6 0, deref, lit8, plus: the return address's place
      0x76, 0, 0x06,                    // breg6 0, deref: the saved rbp's
  };
  row.expressions = ByteView(kCode, sizeof kCode);
  row.cfa = CfaRule::expression({0, 6});
  row.return_address = RegisterRule::at_expression({6, 5});
  (void)row.registers.set(x86_64::kRbp, RegisterRule::at_expression({11, 3}));
}

void set(FrameRow& row, RegisterNumber reg, Place kind, std::int32_t at) {
  const RegisterNumber base = kind == Place::kAtSp ? x86_64::kRsp : x86_64::kRbp;
  if (kind == Place::kAtSp || kind == Place::kAtFp) (void)row.registers.set(reg, RegisterRule::at_register(base, at));
  if (kind == Place::kAtCfa) (void)row.registers.set(reg, RegisterRule::at_cfa(at));
  if (kind == Place::kUnknown) (void)row.registers.set(reg, RegisterRule::undefined());
}

}  // namespace

FrameState FrameState::at_entry() {
  FrameState state;
  state.cfa_kind = Cfa::kAtSp;
  state.cfa = kWord;
  state.return_kind = Place::kAtSp;
  state.fp_kind = Place::kRegister;
  return state;
}

FrameState FrameState::throwing() {
  FrameState state = at_entry();
  state.cfa = 0;
  state.return_kind = Place::kRegister;
  state.return_register = kRdx;
  return state;
}

FrameState FrameState::in_body(std::uint32_t frame_bytes) {
  FrameState state = at_entry();
  const auto depth = static_cast<std::int32_t>(frame_bytes) + kWord;
  state.cfa = depth;
  state.return_at = depth - kWord;
  state.fp_kind = Place::kAtSp;
  state.fp_at = depth - 2 * kWord;
  return state;
}

FrameState FrameState::interpreted() {
  FrameState state;
  state.cfa_kind = Cfa::kSenderSlot;
  state.return_kind = state.fp_kind = Place::kAtFp;
  state.return_at = kWord;
  state.fp_is_frame = true;
  return state;
}

FrameState FrameState::in_continuation(std::uint32_t entry_bytes) {
  return in_body((entry_bytes + 15) / 16 * 16 + kWord);
}

FrameState FrameState::entering_interpreter() {
  FrameState state = at_entry();
  state.cfa_kind = Cfa::kSenderSp;
  return state;
}

// Only the frame pointer is preserved, all other registers are the caller's to save; but r15 has the thread in all code
// of Java's.
bool FrameState::row(FrameRow& to) const {
  if (is_nested && cfa_kind != Cfa::kSenderSlot) return false;
  switch (cfa_kind) {
    case Cfa::kUnknown: return false;
    case Cfa::kAtSp: to.cfa = CfaRule::at(x86_64::kRsp, cfa); break;
    case Cfa::kAtFp: to.cfa = CfaRule::at(x86_64::kRbp, cfa); break;
    case Cfa::kSenderSp: to.cfa = CfaRule::at(kR13, 0); break;
    case Cfa::kSenderSlot: to.cfa = CfaRule::loaded(x86_64::kRbp, kSenderAt, 0); break;
    case Cfa::kSenderInRbx: to.cfa = CfaRule::at(x86_64::kRbx, 0); break;
    case Cfa::kAtCopy: to.cfa = CfaRule::at(sp_copy, cfa); break;
    case Cfa::kAboveRoom:
    case Cfa::kAboveAligned:
      if (!set_above_room(to, cfa, cfa_kind == Cfa::kAboveAligned)) return false;
      break;
  }
  const bool same_base = (cfa_kind == Cfa::kAtSp && return_kind == Place::kAtSp) ||
                         (cfa_kind == Cfa::kAtFp && return_kind == Place::kAtFp);
  to.registers.clear();
  for (const RegisterNumber reg : {x86_64::kRbx, x86_64::kR12, kR13, RegisterNumber{14}})
    (void)to.registers.set(reg, RegisterRule::undefined());
  if (is_nested) return set_nested_sender(to), true;
  if (same_base && fp_kind == return_kind)
    (void)to.registers.set(x86_64::kRbp, RegisterRule::at_cfa(fp_at - cfa));
  else
    set(to, x86_64::kRbp, fp_kind, fp_at);
  switch (return_kind) {
    case Place::kUnknown: return false;
    case Place::kRegister: to.return_address = RegisterRule::in_register(return_register); break;
    case Place::kAtCfa: to.return_address = RegisterRule::at_cfa(return_at); break;
    case Place::kAtSp:
    case Place::kAtFp:
      to.return_address =
          same_base ? RegisterRule::at_cfa(return_at - cfa)
                    : RegisterRule::at_register(return_kind == Place::kAtSp ? x86_64::kRsp : x86_64::kRbp, return_at);
      break;
  }
  return true;
}

namespace {

// The state behind each instruction.
class Follower {
 public:
  explicit Follower(const FlowInput& input)
      : state(input.body),
        callers_are_aligned_(input.callers_are_aligned),
        is_adapter_(input.is_adapter),
        loses_fp_(input.loses_fp),
        thread_continuation_(input.thread_continuation),
        continuation_(input.continuation) {}

  FrameState state;

  // False: no effect on sp is known for it.
  void step(std::span<const std::byte> code, const StackEffect& effect) {
    const bool saved_fp = std::exchange(has_just_saved_fp_, effect.kind == Kind::kPush && effect.reg == x86_64::kRbp);
    if (saved_fp && state.fp_is_frame && is_frame_made(code)) {
      state.is_nested = true;
      return;
    }
    if (special(code, effect.length) || (thread_continuation_ != 0 && thaws(code, effect.length))) return;
    switch (effect.kind) {
      case Kind::kMove: move(static_cast<std::int32_t>(effect.delta)); return;
      case Kind::kPush: push(effect.reg); return;
      case Kind::kPop: pop(effect.reg); return;
      case Kind::kSet: set_sp(effect.reg); return;
      case Kind::kUnknown: lose_sp(); return;
      default: return;
    }
  }
  // call to the next instruction: pushes its own address.
  void push_pc() { move(-kWord); }

 private:
  [[nodiscard]] static bool is(std::span<const std::byte> code, std::initializer_list<int> bytes) {
    return code.size() >= bytes.size() &&
           std::ranges::equal(bytes, code.first(bytes.size()), [](int a, std::byte b) { return std::byte(a) == b; });
  }

  // N of mov [rsp + N], rbp, or the other way round.
  [[nodiscard]] static std::optional<std::int32_t> fp_at_sp(std::span<const std::byte> code, std::size_t length,
                                                            std::byte opcode) {
    if (length < 4 || code[0] != std::byte{0x48} || code[1] != opcode || code[3] != std::byte{0x24}) return {};
    std::int32_t at = 0;
    if (code[2] == std::byte{0x2c} && length == 4) return at;
    if (code[2] == std::byte{0x6c} && length == 5) return static_cast<std::int8_t>(code[4]);
    if (code[2] != std::byte{0xac} || length != 8) return {};
    std::memcpy(&at, &code[4], sizeof at);
    return at;
  }

  // A move of 64 bits with the general register REG and rsp or [rsp], as register or memory: REG.
  struct MoveWithSp {
    enum : std::uint8_t { kFromSp, kLoad, kStore } kind;  // mov REG, rsp; mov REG, [rsp]; mov [rsp], REG
    RegisterNumber reg;
  };
  [[nodiscard]] static std::optional<MoveWithSp> move_with_sp(std::span<const std::byte> code, std::size_t length) {
    if (length < 3 || (code[0] & std::byte{0xf8}) != std::byte{0x48}) return {};
    const auto rex = std::to_integer<unsigned>(code[0]), form = std::to_integer<unsigned>(code[2]);
    const bool loads = code[1] == std::byte{0x8b};
    if (!loads && code[1] != std::byte{0x89}) return {};
    const unsigned reg = (form >> 3 & 7) + ((rex & 4) != 0 ? 8 : 0), other = (form & 7) + ((rex & 1) != 0 ? 8 : 0);
    constexpr unsigned kSp = 4;  // as instructions number it
    if (length == 3 && form >= 0xc0 && reg != other && (loads ? other : reg) == kSp)
      return MoveWithSp{MoveWithSp::kFromSp, x86_64::dwarf_number(loads ? reg : other)};
    if (length == 4 && form < 0x40 && other == kSp && code[3] == std::byte{0x24})
      return MoveWithSp{loads ? MoveWithSp::kLoad : MoveWithSp::kStore, x86_64::dwarf_number(reg)};
    return {};
  }

  // mov rbp, rsp
  [[nodiscard]] static bool is_frame_made(std::span<const std::byte> code) {
    return is(code, {0x48, 0x8b, 0xec}) || is(code, {0x48, 0x89, 0xe5});
  }

  // What stack_effect() does not tell of.
  bool special(std::span<const std::byte> code, std::size_t length) {
    if (is_frame_made(code)) {
      frame_here();
    } else if (is(code, {0xc9})) {  // leave
      leave();
    } else if (is(code, {0x48, 0x8b, 0x5d, 0xf8})) {  // mov rbx, [rbp - 8]
      state.sender_in_rbx = state.cfa_kind == Cfa::kSenderSlot;
    } else if (is(code, {0x48, 0x83, 0xe4, 0xf0})) {  // and rsp, -16
      if (state.cfa_kind == Cfa::kAboveRoom)
        state.cfa_kind = Cfa::kAboveAligned;
      else if (!callers_are_aligned_ || state.cfa_kind != Cfa::kAtSp || state.cfa % 16 != 0)
        go_by_copy();
    } else if (const auto saved = fp_at_sp(code, length, std::byte{0x89})) {
      save_fp(*saved);
    } else if (const auto loaded = fp_at_sp(code, length, std::byte{0x8b})) {
      if (state.fp_kind == Place::kAtSp && state.fp_at == *loaded) state.fp_kind = Place::kRegister;
    } else if (const auto move = move_with_sp(code, length)) {
      copy(*move);
    } else {
      return false;
    }
    return true;
  }

  // generate_cont_thaw() makes rbx bytes of room below the ContinuationEntry, and has frames put there. rbx then holds
  // sp of the innermost of these. That frame returns by the words below (stubGenerator_x86_64.cpp,
  // Thaw::push_return_frame).
  bool thaws(std::span<const std::byte> code, std::size_t length) {
    if (length == 7 && is(code, {0x49, 0x8b, 0xa7})) {  // mov rsp, [r15 + N]
      std::uint32_t field = 0;
      std::memcpy(&field, &code[3], sizeof field);
      if (field != thread_continuation_) return false;
      state = continuation_;
    } else if (is(code, {0x48, 0x2b, 0xe3}) || is(code, {0x48, 0x29, 0xdc})) {  // sub rsp, rbx
      if (state.cfa_kind != Cfa::kAtSp) return false;
      go_by_cfa();
      state.cfa_kind = Cfa::kAboveRoom;
    } else if (is(code, {0x48, 0x8b, 0xd8}) || is(code, {0x48, 0x89, 0xc3})) {  // mov rbx, rax
      if (state.cfa_kind != Cfa::kAboveAligned) return false;
      state.cfa_kind = Cfa::kSenderInRbx;
      state.return_kind = state.fp_kind = Place::kAtCfa;
      state.return_at = -kWord, state.fp_at = -2 * kWord;
    } else {
      return false;
    }
    return true;
  }

  // What is known by sp is known by the CFA.
  void go_by_cfa() {
    if (state.return_kind == Place::kAtSp) state.return_kind = Place::kAtCfa, state.return_at -= state.cfa;
    if (state.fp_kind == Place::kAtSp) state.fp_kind = Place::kAtCfa, state.fp_at -= state.cfa;
  }

  void copy(const MoveWithSp& move) {
    const auto reg = static_cast<std::uint8_t>(move.reg);
    const bool is_on_top = state.return_kind == Place::kAtSp && state.return_at == 0;
    if (move.kind == MoveWithSp::kFromSp) {
      state.has_sp_copy = state.cfa_kind == Cfa::kAtSp;
      state.sp_copy = reg;
      state.sp_copy_cfa = state.cfa;
    } else if (move.kind == MoveWithSp::kLoad) {
      state.has_return_copy = is_on_top;
      state.return_copy = reg;
    } else if (state.return_kind == Place::kRegister && state.return_register == reg) {
      state.return_kind = Place::kAtSp, state.return_at = 0;
    }
  }

  // sp becomes something else, but where it was is known by a copy.
  void go_by_copy() {
    const bool knows = state.has_sp_copy && state.cfa_kind == Cfa::kAtSp;
    const bool in_place = state.return_kind == Place::kAtSp && state.return_at == state.cfa - kWord;
    lose_sp();
    if (!knows) return;
    state.cfa_kind = Cfa::kAtCopy;
    state.cfa = state.sp_copy_cfa;
    if (in_place) state.return_kind = Place::kAtCfa, state.return_at = -kWord;
  }

  void save_fp(std::int32_t at) {
    const std::int32_t own = state.return_kind == Place::kAtSp ? state.return_at - kWord : -1;
    if (state.fp_kind == Place::kRegister && at == own) state.fp_kind = Place::kAtSp, state.fp_at = at;
  }

  void move(std::int32_t delta) {
    if (state.cfa_kind == Cfa::kAtSp || state.cfa_kind == Cfa::kAboveRoom || state.cfa_kind == Cfa::kAboveAligned)
      state.cfa -= delta;
    if (state.return_kind == Place::kAtSp) state.return_at -= delta;
    if (state.fp_kind == Place::kAtSp) state.fp_at -= delta;
    if (state.cfa_kind == Cfa::kAtCopy) state.has_return_copy = false;  // it is pushed at once, or kept for a call
  }

  void push(RegisterNumber reg) {
    const bool is_return = state.return_kind == Place::kRegister && reg == state.return_register;
    const bool is_copy = state.has_return_copy && reg == state.return_copy;
    move(-kWord);
    if (reg == x86_64::kRbp && state.fp_kind == Place::kRegister) state.fp_kind = Place::kAtSp, state.fp_at = 0;
    if (is_adapter_ && state.cfa_kind == Cfa::kAtCopy && state.fp_kind == Place::kRegister && (is_return || is_copy))
      state = FrameState::at_entry();  // of the method that comes next, which returns from there
    else if (is_return)
      state.return_kind = Place::kAtSp, state.return_at = 0;
    // The interpreter's frame has the sender's sp below the saved frame pointer.
    if (reg == kR13 && state.cfa_kind == Cfa::kSenderSp && state.fp_is_frame) state.cfa_kind = Cfa::kSenderSlot;
  }

  void pop(RegisterNumber reg) {
    if (state.return_kind == Place::kAtSp && state.return_at == 0) {
      state.return_kind = Place::kRegister;
      state.return_register = static_cast<std::uint8_t>(reg);
    }
    if (state.has_return_copy && reg == state.return_copy) state.has_return_copy = false;
    if (state.has_sp_copy && reg == state.sp_copy) state.has_sp_copy = false;
    if (reg == x86_64::kRbp) {
      // The saved one, or something else that was pushed.
      if (state.fp_kind == Place::kRegister) state.fp_kind = Place::kUnknown;
      if (state.fp_kind == Place::kAtSp && state.fp_at == 0) state.fp_kind = Place::kRegister;
      lose_frame();
    }
    if (reg == x86_64::kRbx) lose_rbx();
    move(kWord);
  }

  // rbp is sp now: what is known by sp may be lost later on, and stays known by rbp.
  void frame_here() {
    if (loses_fp_ || state.fp_kind != Place::kAtSp || state.fp_at != 0) return;
    if (state.return_kind == Place::kAtSp) state.return_kind = Place::kAtFp;
    state.fp_kind = Place::kAtFp;
    if (state.cfa_kind == Cfa::kAtSp) state.cfa_kind = Cfa::kAtFp;
    state.fp_is_frame = true;
  }

  void leave() {
    if (std::exchange(state.is_nested, false)) return;
    if (!state.fp_is_frame || state.fp_kind != Place::kAtFp || state.fp_at != 0) {
      state = {};
      return;
    }
    state.fp_kind = Place::kRegister;
    state.fp_is_frame = false;
    if (state.return_kind == Place::kAtFp) state.return_kind = Place::kAtSp, state.return_at -= kWord;
    if (state.cfa_kind == Cfa::kAtFp) state.cfa_kind = Cfa::kAtSp, state.cfa -= kWord;
    if (state.cfa_kind == Cfa::kSenderSlot) state.cfa_kind = state.sender_in_rbx ? Cfa::kSenderInRbx : Cfa::kUnknown;
  }

  void set_sp(RegisterNumber reg) {
    const bool is_sender = (state.cfa_kind == Cfa::kSenderInRbx && reg == x86_64::kRbx) ||
                           (state.cfa_kind == Cfa::kSenderSp && reg == kR13);
    const bool is_copy = state.cfa_kind == Cfa::kAtCopy && reg == state.sp_copy;
    lose_sp();
    if (is_sender) state.cfa = 0;
    if (!is_sender && !is_copy) return;
    state.cfa_kind = Cfa::kAtSp;
    if (state.return_kind == Place::kAtCfa) state.return_kind = Place::kAtSp, state.return_at += state.cfa;
    if (state.fp_kind == Place::kAtCfa) state.fp_kind = Place::kAtSp, state.fp_at += state.cfa;
  }

  void lose_sp() {
    if (state.cfa_kind == Cfa::kAtSp) state.cfa_kind = Cfa::kUnknown;
    if (state.return_kind == Place::kAtSp) state.return_kind = Place::kUnknown;
    if (state.fp_kind == Place::kAtSp) state.fp_kind = Place::kUnknown;
  }
  void lose_frame() {
    if (std::exchange(state.is_nested, false)) return;
    state.fp_is_frame = false;
    if (state.cfa_kind == Cfa::kAtFp || state.cfa_kind == Cfa::kSenderSlot) state.cfa_kind = Cfa::kUnknown;
    if (state.return_kind == Place::kAtFp) state.return_kind = Place::kUnknown;
  }
  void lose_rbx() {
    state.sender_in_rbx = false;
    if (state.cfa_kind == Cfa::kSenderInRbx) state.cfa_kind = Cfa::kUnknown;
  }

  bool callers_are_aligned_, is_adapter_, loses_fp_, has_just_saved_fp_ = false;
  std::uint32_t thread_continuation_;
  FrameState continuation_;
};

}  // namespace

std::vector<FrameStretch> flow(const FlowInput& input) {
  std::vector<FrameStretch> out;
  std::map<std::uint32_t, FrameState> at_targets = input.entries;
  Follower follower(input);
  bool comes_from_above = false, is_assumed = false;
  const auto size = static_cast<std::uint32_t>(input.code.size());
  for (std::uint32_t at = 0; at < size;) {
    // Where the code goes on from above, that is what counts, but for an entry, or where it was only taken for the
    // body.
    if (const auto target = at_targets.find(at);
        target != at_targets.end() && (!comes_from_above || is_assumed || input.entries.contains(at))) {
      follower.state = target->second;
      is_assumed = false;
    } else if (!comes_from_above) {
      follower.state = input.body;
      is_assumed = true;
    }
    if (out.empty() || out.back().state != follower.state) out.push_back({at, follower.state});
    const auto rest = input.code.subspan(at);
    const auto effect = flow::stack_effect(ByteView(rest.data(), rest.size()), input.address + at);
    if (!effect) {
      follower.state = {};
      comes_from_above = true;
      ++at;
      continue;
    }
    follower.step(rest, *effect);
    const std::uint32_t next = at + effect->length;
    const std::uint64_t to = effect->target - input.address;
    if (effect->kind == Kind::kCall && rest.size() >= 5 && rest[0] == std::byte{0xe8} &&
        std::ranges::all_of(rest.subspan(1, 4), [](std::byte b) { return b == std::byte{0}; }))
      follower.push_pc();
    if ((effect->kind == Kind::kBranch || effect->kind == Kind::kJump) && to > at && to < size)
      at_targets.try_emplace(static_cast<std::uint32_t>(to), follower.state);
    comes_from_above = effect->kind != Kind::kJump && effect->kind != Kind::kReturn;
    at = next;
  }
  return out;
}

}  // namespace windlass::runtimes::hotspot
