#include "runtimes/described_code.h"

#include <algorithm>

#include "base/registers.h"

namespace windlass::runtimes {

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

Expected<void> DescribedCode::row_at(std::uint64_t address, FrameRow& to) const {
  const auto after = std::ranges::upper_bound(rows_, address, {}, &FrameRow::begin);
  if (after == rows_.begin() || address >= std::prev(after)->end)
    return fail(ErrorCode::kNotFound, "code of which the runtime says nothing", address);
  to = *std::prev(after);
  return {};
}

void DescribedCode::for_each_row(sources::RowSink row, sources::ErrorSink) const {
  for (const FrameRow& one : rows_) row(one);
}

}  // namespace windlass::runtimes
