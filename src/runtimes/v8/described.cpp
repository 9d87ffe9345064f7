#include "runtimes/v8/described.h"

#include <algorithm>
#include <array>
#include <utility>

#include "arch/registers.h"

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

Expected<Description> describe_code(ByteView code, std::uint64_t address, bool called_by_c,
                                    const std::function<bool(std::uint64_t, void*, std::size_t)>& read) {
  DescribeOptions options;
  options.keeps_frame_pointer_only = options.drops_arguments = !called_by_c;
  options.read = read;
  return describe({code.data(), code.size()}, address, Architecture::kX86_64, options);
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
