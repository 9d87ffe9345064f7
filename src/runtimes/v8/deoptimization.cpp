#include "runtimes/v8/deoptimization.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "formats/dwarf/encode.h"
#include "formats/dwarf/expression_ops.h"
#include "runtimes/v8/described.h"

namespace windlass::runtimes::v8 {
namespace {

constexpr std::uint32_t kMostSaved = 4096;  // bytes of registers
constexpr int kAny = -1;                    // a byte of an operand
constexpr RegisterNumber kRcx = 2;          // System V x86-64 psABI, figure 3.36

// mov rbx, [rax + N]; pop [rbx + N]
constexpr std::array kTakeInput = {0x48, 0x8b, 0x58, kAny, 0x8f, 0x83};
constexpr std::size_t kInputAt = 3;
// add rsp, 8; mov rcx, [rbx]; add rcx, rsp; lea rdx, [rbx + N]; jmp to cmp
// pop [rdx]; add rdx, 8; cmp rcx, rsp; jne to pop
// push rax; mov r10, rsp; sub rsp, 8; and rsp, -16; mov [rsp], r10
constexpr std::array kTakeFrame = {0x48, 0x83, 0xc4, 0x08, 0x48, 0x8b, 0x0b, 0x48, 0x01, 0xe1, 0x48, 0x8d, 0x93,
                                   kAny, kAny, kAny, kAny, 0xe9, 0x06, 0x00, 0x00, 0x00, 0x8f, 0x02, 0x48, 0x83,
                                   0xc2, 0x08, 0x48, 0x39, 0xe1, 0x75, 0xf5, 0x50, 0x49, 0x89, 0xe2, 0x48, 0x83,
                                   0xec, 0x08, 0x48, 0x83, 0xe4, 0xf0, 0x4c, 0x89, 0x14, 0x24};
constexpr std::uint32_t kLeft = 4, kMeasured = 10, kContentAt = 13;
// mov rsp, [rsp]
constexpr std::array kReturn = {0x48, 0x8b, 0x24, 0x24};
// mov [rsp], r10
constexpr std::array kAlign = {0x4c, 0x89, 0x14, 0x24};
// pop rax; mov rsp, [rax + N]
constexpr std::array kDrop = {0x58, 0x48, 0x8b, 0x60, kAny};

template <std::size_t N>
bool is_at(ByteView code, std::size_t at, const std::array<int, N>& bytes) {
  if (at > code.size() || code.size() - at < N) return false;
  for (std::size_t i = 0; i < N; ++i)
    if (bytes[i] != kAny && code.u8()[at + i] != bytes[i]) return false;
  return true;
}

// Where they are; nothing if that is nowhere or not the only place.
template <std::size_t N>
std::optional<std::uint32_t> only_place(ByteView code, const std::array<int, N>& bytes) {
  std::optional<std::uint32_t> found;
  for (std::size_t at = 0; at < code.size(); ++at) {
    if (!is_at(code, at, bytes)) continue;
    if (found) return std::nullopt;
    found = static_cast<std::uint32_t>(at);
  }
  return found;
}

constexpr std::uint32_t kReturnAddress = 8;  // above the frame pointer

// Where the word of the frame is that was so far above its frame pointer. The CFA, which is pushed, is where the frame
// ended on the stack.
dwarf::Block place_of_word(const Deoptimization& code, std::uint32_t above) {
  using namespace dwarf;
  Block to = {DW_OP_dup, DW_OP_lit0 + 8, DW_OP_minus, DW_OP_deref, DW_OP_plus_uconst};
  put_uleb(to, code.input);
  to.insert(to.end(), {DW_OP_deref, DW_OP_dup, DW_OP_deref, DW_OP_plus, DW_OP_swap, DW_OP_minus});
  to.push_back(DW_OP_breg0 + x86_64::kRbp);
  put_sleb(to, std::int64_t{code.content} + above);
  to.push_back(DW_OP_plus);
  return to;
}

// What is done from behind the first call on, where sp is that of the registers again, to where they are all gone.
// Empty: something else.
std::vector<Deoptimization::Saved> read_saved(ByteView code, std::uint64_t address, std::uint32_t input,
                                              std::uint32_t gone) {
  using Kind = windlass::flow::StackEffect::Kind;
  std::uint32_t begin = 0;
  for (std::uint32_t at = 0; at < input; ++at)
    if (is_at(code, at, kReturn)) begin = at + static_cast<std::uint32_t>(kReturn.size());
  std::vector<Deoptimization::Saved> found;
  if (begin == 0) return found;
  windlass::flow::StraightCode line(code, address, gone, begin);
  while (const auto effect = line.next()) {
    const bool moves = effect->kind == Kind::kMove && effect->delta > 0;
    if (!moves && effect->kind != Kind::kNone) return {};
    const auto behind = static_cast<std::uint32_t>(line.end());
    if (found.empty() || found.back().above != 0) found.push_back({static_cast<std::uint32_t>(line.offset()), behind});
    found.back().end = behind;
    if (found.front().above > kMostSaved) return {};
    for (Deoptimization::Saved& it : found) it.above += moves ? static_cast<std::uint32_t>(effect->delta) : 0;
  }
  return !found.empty() && found.back().end == gone ? found : std::vector<Deoptimization::Saved>();
}

}  // namespace

std::optional<Deoptimization> Deoptimization::read(ByteView code, std::uint64_t address) {
  using Kind = windlass::flow::StackEffect::Kind;
  const auto input = only_place(code, kTakeInput), frame = only_place(code, kTakeFrame);
  if (!input || !frame || *input > *frame) return std::nullopt;
  Deoptimization found;
  found.input = code.u8()[*input + kInputAt];
  std::memcpy(&found.content, code.data() + *frame + kContentAt, sizeof found.content);
  if (found.input >= 0x80 || found.content > 0xffff) return std::nullopt;
  found.saved = read_saved(code, address, *input, *frame);
  const auto front = found.saved.empty() ? ByteView() : code.sub(0, found.saved.front().begin).value_or(ByteView());
  const auto aligned = only_place(front, kAlign);
  if (!aligned) return std::nullopt;
  found.aligned = *aligned + static_cast<std::uint32_t>(kAlign.size());
  found.left = *frame + kLeft;
  found.measured = *frame + kMeasured;
  found.kept = *frame + static_cast<std::uint32_t>(kTakeFrame.size());
  bool called = false;
  windlass::flow::StraightCode line(code, address, code.size(), found.kept);
  while (const auto effect = line.next()) {
    if (called && is_at(code, line.offset(), kReturn)) {
      found.returned = static_cast<std::uint32_t>(line.end());
      break;
    }
    const bool calls = effect->kind == Kind::kCall;
    if (calls ? called : effect->kind != Kind::kNone) return std::nullopt;
    called |= calls;
  }
  while (const auto effect = line.next()) {
    const auto at = static_cast<std::uint32_t>(line.offset());
    if (is_at(code, at, kDrop)) {
      found.dropped = at + 1;
      found.end = at + static_cast<std::uint32_t>(kDrop.size());
      return found;
    }
    if (effect->kind != Kind::kNone) break;
  }
  return std::nullopt;
}

std::vector<std::uint8_t> Deoptimization::expressions() const {
  dwarf::Block bytes = place_of_word(*this, kReturnAddress);
  const dwarf::Block frame_pointer = place_of_word(*this, 0);
  bytes.insert(bytes.end(), frame_pointer.begin(), frame_pointer.end());
  return bytes;
}

void Deoptimization::describe(ByteView expressions, Description& to) const {
  const std::uint32_t first_row = aligned;
  const auto is_here = [&](const auto& it) { return it.begin < end && first_row < it.end; };
  std::vector<FrameRow> rows;
  for (const FrameRow& row : to.rows) {
    FrameRow front = row, behind = row;
    front.end = std::min<std::uint64_t>(row.end, first_row);
    behind.begin = std::max<std::uint64_t>(row.begin, end);
    if (front.begin < front.end) rows.push_back(front);
    if (behind.begin < behind.end) rows.push_back(behind);
  }
  std::erase_if(to.unproved, is_here);
  FrameRow calling = entry_row(aligned, saved.front().begin);
  calling.cfa = CfaRule::loaded(x86_64::kRsp, 0, static_cast<std::int16_t>(saved.front().above + 8));
  rows.push_back(calling);
  for (const Saved& it : saved) rows.push_back(entry_row(it.begin, it.end, static_cast<std::int32_t>(it.above)));
  rows.push_back(entry_row(saved.back().end, left));
  // Its words are still there, and no more than the red zone below sp while they are taken off (rcx has where they
  // end).
  rows.push_back(frame_row(left, measured));
  FrameRow taking = frame_row(measured, kept);
  taking.cfa = CfaRule::at(kRcx, 0);
  taking.return_address = RegisterRule::at_register(x86_64::kRbp, kReturnAddress);
  (void)taking.registers.set(x86_64::kRbp, RegisterRule::at_register(x86_64::kRbp, 0));
  rows.push_back(taking);
  // In the object.
  const auto first = static_cast<std::uint16_t>(place_of_word(*this, kReturnAddress).size());
  const auto second = static_cast<std::uint16_t>(expressions.size() - first);
  const auto held = [&](std::uint32_t begin, std::uint32_t behind, CfaRule cfa) {
    FrameRow row = frame_row(begin, behind);
    row.expressions = expressions;
    row.cfa = cfa;
    row.return_address = RegisterRule::at_expression({0, first});
    (void)row.registers.set(x86_64::kRbp, RegisterRule::at_expression({first, second}));
    rows.push_back(row);
  };
  held(kept, returned, CfaRule::loaded(x86_64::kRsp, 0, 8));
  held(returned, dropped, CfaRule::at(x86_64::kRsp, 8));
  held(dropped, end, CfaRule::at(x86_64::kRsp, 0));
  std::ranges::sort(rows, {}, &FrameRow::begin);
  to.rows = std::move(rows);
}

}  // namespace windlass::runtimes::v8
