#include "runtimes/v8/described.h"

#include <algorithm>
#include <array>
#include <utility>

#include "arch/registers.h"
#include "code/stack_effect.h"

namespace windlass::runtimes::v8 {

FrameRow frame_row(std::uint64_t begin, std::uint64_t end) {
  FrameRow row;
  row.begin = begin;
  row.end = end;
  row.cfa = CfaRule::at(x86_64::kRbp, 16);
  row.return_address = RegisterRule::at_cfa(-8);
  (void)row.registers.set(x86_64::kRbp, RegisterRule::at_cfa(-16));
  for (const RegisterNumber lost :
       {RegisterNumber{x86_64::kRbx}, RegisterNumber{12}, RegisterNumber{13}, RegisterNumber{14}, RegisterNumber{15}})
    (void)row.registers.set(lost, RegisterRule::undefined());
  return row;
}

namespace {

// Where code goes on in another function by a jump, the stack is as that one is entered with: the return address is on
// top, and the caller's frame pointer is back. So it is at what leads straight there and leaves sp alone, however the
// arguments were moved before: in a loop, by counts that are not known, on some ways only (builtins-x64.cc,
// Generate_CallFunction: InvokeFunctionCode). What V8 puts the return address back with is a push, where this ends.
void add_leaving_rows(ByteView code, std::uint64_t address, Description& to) {
  using Kind = windlass::code::StackEffect::Kind;
  const auto is_lost = [](const Unproved& stretch) {
    return stretch.reason == Unproved::kDifferentFrames || stretch.reason == Unproved::kFrameLost;
  };
  const auto row_of = [](std::uint64_t begin, std::uint64_t end) {
    FrameRow row = frame_row(begin, end);
    row.cfa = CfaRule::at(x86_64::kRsp, 8);
    (void)row.registers.set(x86_64::kRbp, RegisterRule::same_value());
    return row;
  };
  std::vector<FrameRow> leaving;
  // From the last to the first: jumps lead to what is known already.
  for (auto stretch = to.unproved.rbegin(); stretch != to.unproved.rend(); ++stretch) {
    if (!is_lost(*stretch)) continue;
    std::vector<std::pair<std::uint32_t, windlass::code::StackEffect>> effects;
    for (std::uint32_t at = stretch->begin; at < stretch->end;) {
      const auto effect = windlass::code::stack_effect(*code.sub(at, code.size() - at), address + at);
      if (!effect) break;
      effects.emplace_back(at, *effect);
      at += effect->length;
    }
    if (effects.empty() || effects.back().first + effects.back().second.length != stretch->end) continue;
    const auto& last = effects.back().second;
    const std::uint64_t target = last.target - address;
    const bool known =
        std::ranges::any_of(leaving, [&](const FrameRow& row) { return target >= row.begin && target < row.end; });
    if (last.kind != Kind::kJump || (last.target != 0 && target < code.size() && !known)) continue;
    auto first = std::prev(effects.end());
    while (first != effects.begin() && std::prev(first)->second.kind == Kind::kNone) --first;
    leaving.push_back(row_of(first->first, stretch->end));
    stretch->end = first->first;
  }
  std::erase_if(to.unproved, [](const Unproved& stretch) { return stretch.begin == stretch.end; });
  to.rows.insert(to.rows.end(), leaving.begin(), leaving.end());
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

// As if the frame were set up right in front of that. (What is in memory there is something else and must not be read.)
Expected<Description> describe_framed(std::vector<std::byte> code, std::uint64_t address, std::size_t from) {
  constexpr std::array kSetUp = {std::byte{0x55}, std::byte{0x48}, std::byte{0x89}, std::byte{0xe5}};
  const std::size_t shift = kSetUp.size();
  code.erase(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(from));
  code.insert(code.begin(), kSetUp.begin(), kSetUp.end());
  auto found = describe_code({code.data(), code.size()}, address + from - shift, false, {});
  if (!found) return found;
  std::vector<FrameRow> rows;
  if (from != 0) {
    FrameRow& entry = rows.emplace_back();
    entry = frame_row(0, from);
    entry.cfa = CfaRule::at(x86_64::kRsp, 8);
    (void)entry.registers.set(x86_64::kRbp, RegisterRule::same_value());
  }
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

}  // namespace windlass::runtimes::v8
