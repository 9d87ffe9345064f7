#include "rows/written_rows.h"

#include <cstdint>

namespace windlass {

Expected<void> check_written_rows(std::span<const FrameRow> rows) {
  if (rows.empty()) return fail(ErrorCode::kMalformed, "a function without a row", 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].end <= rows[i].begin || (i != 0 && rows[i].begin != rows[i - 1].end))
      return fail(ErrorCode::kMalformed, "rows that do not ascend and adjoin", rows[i].begin);
    if (rows[i].signal_frame != rows[0].signal_frame)
      return fail(ErrorCode::kUnsupported, "a part of a function is a signal frame", rows[i].begin);
  }
  if (rows.back().end - rows[0].begin > UINT32_MAX)
    return fail(ErrorCode::kLimit, "a function of more than 4 GiB", rows[0].begin);
  return {};
}

}  // namespace windlass
