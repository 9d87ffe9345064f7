#include "runtimes/described_code.h"

#include <algorithm>

namespace windlass::runtimes {

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
