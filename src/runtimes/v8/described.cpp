#include "runtimes/v8/described.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/registers.h"
#include "flow/stack_effect.h"

namespace windlass::runtimes::v8 {

FrameRow entry_row(std::uint64_t begin, std::uint64_t end, std::int32_t above) {
  FrameRow row = frame_row(begin, end);
  row.cfa = CfaRule::at(x86_64::kRsp, 8 + above);
  (void)row.registers.set(x86_64::kRbp, RegisterRule::same_value());
  return row;
}

namespace {

// Where code jumps into another function, the stack is as at that function's entry. The return address is on top, and
// the caller's frame pointer is back. This also holds for code that leads straight to the jump and leaves sp alone. It
// does not matter how the arguments were moved before: in a loop, by unknown counts, or on some paths only
// (builtins-x64.cc, Generate_CallFunction: InvokeFunctionCode).
//
// If the code moves sp up first, sp is that much further up. V8's compiler restores the frame pointer before that, and
// behind a call nothing else says where sp is. Then the code pushes arguments, and on top of them a copy of the return
// address (push [rsp + n]). Builtins written by hand push the return address from a register instead; the search ends
// there.
struct Leaving {
  std::uint32_t begin = 0, end = 0;
  std::int64_t above = 0;  // bytes that the return address is above sp
};

using Effects = std::vector<std::pair<std::uint32_t, windlass::flow::StackEffect>>;
Effects effects_of(ByteView code, std::uint64_t address, const Unproved& stretch) {
  Effects effects;
  windlass::flow::StraightCode line(code, address, stretch.end, stretch.begin);
  while (const auto effect = line.next()) effects.emplace_back(static_cast<std::uint32_t>(line.offset()), *effect);
  if (line.end() != stretch.end) effects.clear();
  return effects;
}

// How far above sp the return address is in front of an instruction, where it is so far above behind it.
std::optional<std::int64_t> above_in_front(ByteView code, std::uint32_t at, const windlass::flow::StackEffect& effect,
                                           std::int64_t above) {
  using Kind = windlass::flow::StackEffect::Kind;
  constexpr std::int64_t kFarthest = 1 << 20, kWord = 8;
  constexpr std::array kPushFromStack = {std::byte{0xff}, std::byte{0x74}, std::byte{0x24}};  // push [rsp + n]
  if (effect.kind == Kind::kNone) return above;
  if (effect.kind == Kind::kMove && effect.delta > 0 && above + effect.delta <= kFarthest) return above + effect.delta;
  if (effect.kind != Kind::kPush && (effect.kind != Kind::kMove || effect.delta != -kWord)) return std::nullopt;
  if (above >= kWord) return above - kWord;
  const bool copies = effect.kind == Kind::kMove && above == 0 && effect.length == kPushFromStack.size() + 1 &&
                      std::ranges::equal(std::span(code.data() + at, kPushFromStack.size()), kPushFromStack);
  const auto distance = copies ? static_cast<std::int8_t>(code.data()[at + kPushFromStack.size()]) : std::int8_t{-1};
  return distance >= 0 ? std::optional<std::int64_t>(distance) : std::nullopt;
}

// A jump back, for which its loop's first instruction is taken to be like what stands behind. What was known before it.
struct Back {
  std::uint32_t target = 0, end = 0;
  std::int64_t above = 0;
  std::vector<Leaving> leaving;
};

// mov and others of a word that is addressed by rsp, but lea: a loop may be putting the return address there. Other
// encodings (SSE, AVX) are taken for such.
bool uses_word_by_sp(ByteView code, std::uint32_t at, std::uint32_t length) {
  constexpr std::uint8_t kRexes = 0x40, kLea = 0x8d, kSib = 4, kSp = 4, kRexBase = 1;
  const auto* bytes = code.u8() + at;
  const bool has_rex = (bytes[0] & 0xf0) == kRexes;
  const std::size_t opcode = has_rex ? 1 : 0;
  constexpr std::array<std::uint8_t, 7> kOthers = {0x0f, 0x62, 0x66, 0xc4, 0xc5, 0xf2, 0xf3};
  if (length > opcode && std::ranges::find(kOthers, bytes[opcode]) != kOthers.end()) return true;
  if (length < opcode + 3 || bytes[opcode] == kLea) return false;
  return (bytes[opcode + 1] & 7) == kSib && bytes[opcode + 1] < 0xc0 && (bytes[opcode + 2] & 7) == kSp &&
         (!has_rex || (bytes[0] & kRexBase) == 0);
}

void add_leaving_rows(ByteView code, std::uint64_t address, Description& to) {
  using Kind = windlass::flow::StackEffect::Kind;
  const auto is_lost = [](const Unproved& stretch) {
    return stretch.reason == Unproved::kDifferentFrames || stretch.reason == Unproved::kFrameLost;
  };
  std::vector<Leaving> leaving;
  // Where a jump leads to; a target of 0 is not known, and out of the code.
  const auto above_at = [&](std::uint64_t target) -> std::optional<std::int64_t> {
    if (target == 0 || target - address >= code.size()) return 0;
    const auto has = [&](const Leaving& it) { return target - address >= it.begin && target - address < it.end; };
    const auto known = std::ranges::find_if(leaving, has);
    return known != leaving.end() ? std::optional(known->above) : std::nullopt;
  };
  // From the last to the first: most jumps lead to what is known already.
  for (auto stretch = to.unproved.rbegin(); stretch != to.unproved.rend(); ++stretch) {
    const Effects effects = is_lost(*stretch) ? effects_of(code, address, *stretch) : Effects();
    if (effects.empty() || effects.back().second.kind != Kind::kJump) continue;
    std::int64_t above = 0;
    std::vector<Back> back;
    for (auto at = effects.rbegin(); at != effects.rend(); ++at) {
      const auto& [offset, effect] = *at;
      const bool jumps = effect.kind == Kind::kJump, branches = effect.kind == Kind::kBranch;
      auto in_front = jumps || branches ? above_at(effect.target) : above_in_front(code, offset, effect, above);
      const std::uint64_t target = effect.target - address;
      if (!in_front && (jumps || branches) && target >= stretch->begin && target < offset) {
        back.push_back({static_cast<std::uint32_t>(target), stretch->end, above, leaving});
        in_front = above;
      }
      if (!in_front || (branches && *in_front != above)) break;
      if (!back.empty() && effect.kind == Kind::kNone && uses_word_by_sp(code, offset, effect.length)) break;
      above = *in_front;
      if (at == effects.rbegin() || leaving.back().above != above)
        leaving.push_back({offset, offset + effect.length, above});
      leaving.back().begin = stretch->end = offset;
      const bool is_loop = !back.empty() && back.back().target == offset && back.back().above == above;
      if (is_loop) back.pop_back();
    }
    if (!back.empty()) leaving = std::move(back.front().leaving), stretch->end = back.front().end;
  }
  std::erase_if(to.unproved, [](const Unproved& stretch) { return stretch.begin == stretch.end; });
  for (const Leaving& it : leaving) to.rows.push_back(entry_row(it.begin, it.end, static_cast<std::int32_t>(it.above)));
  std::ranges::sort(to.rows, {}, &FrameRow::begin);
}

}  // namespace

Expected<Description> describe_code(ByteView code, std::uint64_t address, bool called_by_c,
                                    const std::function<bool(std::uint64_t, void*, std::size_t)>& read) {
  DescribeOptions options;
  options.keeps_frame_pointer_only = options.drops_arguments = !called_by_c;
  options.read = read;
  auto found = describe({code.data(), code.size()}, address, Architecture::kX86_64, options);
  if (found && !called_by_c) add_leaving_rows(code, address, *found);
  return found;
}

namespace {

// As if `front` were done right in front of that. (What is in memory there is something else and must not be read.)
Expected<Description> describe_behind(std::span<const std::byte> front, std::vector<std::byte> code,
                                      std::uint64_t address, std::size_t from) {
  const std::size_t shift = front.size();
  code.erase(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(from));
  code.insert(code.begin(), front.begin(), front.end());
  auto found = describe_code({code.data(), code.size()}, address + from - shift, false, {});
  if (!found) return found;
  std::vector<FrameRow> rows;
  if (from != 0) rows.push_back(entry_row(0, from));
  for (FrameRow& row : found->rows) {
    row.begin = std::max<std::uint64_t>(row.begin, shift) + from - shift;
    if (row.end <= shift) continue;
    row.end = row.end + from - shift;
    rows.push_back(std::move(row));
  }
  found->rows = std::move(rows);
  std::erase_if(found->unproved, [&](const Unproved& stretch) { return stretch.end <= shift; });
  for (Unproved& stretch : found->unproved) {
    stretch.begin = static_cast<std::uint32_t>(std::max<std::size_t>(stretch.begin, shift) + from - shift);
    stretch.end = static_cast<std::uint32_t>(stretch.end + from - shift);
  }
  return found;
}

}  // namespace

Expected<Description> describe_framed(std::vector<std::byte> code, std::uint64_t address, std::size_t from) {
  constexpr std::array kSetUp = {std::byte{0x55}, std::byte{0x48}, std::byte{0x89}, std::byte{0xe5}};
  return describe_behind(kSetUp, std::move(code), address, from);
}

Expected<Description> describe_pushed(std::vector<std::byte> code, std::uint64_t address) {
  constexpr std::array kPush = {std::byte{0x6a}, std::byte{0}};
  return describe_behind(kPush, std::move(code), address, 0);
}

Expected<Description> describe_continuation(ByteView code, std::uint64_t address) {
  using Kind = windlass::flow::StackEffect::Kind;
  constexpr std::array kLoad = {std::byte{0x48}, std::byte{0x8b}, std::byte{0x6c}, std::byte{0x24}};  // and N
  constexpr std::uint32_t kReturnAddress = 8;  // above where the frame pointer is
  Description found;
  std::optional<std::int64_t> above;  // of the return address over sp
  windlass::flow::StraightCode line(code, address, code.size());
  while (const auto effect = line.next()) {
    const std::span bytes(code.data() + line.offset(), line.end() - line.offset());
    const bool loads = bytes.size() == kLoad.size() + 1 && std::ranges::equal(bytes.first(kLoad.size()), kLoad);
    const bool moves = effect->kind == Kind::kMove || effect->kind == Kind::kPop;
    if (above) found.rows.push_back(entry_row(line.offset(), line.end(), static_cast<std::int32_t>(*above)));
    if (effect->kind == Kind::kReturn && above == kReturnAddress) return found;
    if (effect->kind != Kind::kNone && !moves) break;
    if (above && moves) *above -= effect->delta;
    if (!loads) continue;
    if (above) break;
    found.rows.push_back(frame_row(0, line.end()));
    above = code.u8()[line.end() - 1] + kReturnAddress;
  }
  return fail(ErrorCode::kNotFound, "nothing is known of this instruction's frame", address);
}

}  // namespace windlass::runtimes::v8
