// The rows of a function that the writers of DWARF and SFrame take.
#pragma once

#include <span>

#include "windlass/error.h"
#include "windlass/frame_row.h"

namespace windlass {

// kMalformed: there is no row, or rows do not ascend and adjoin. kUnsupported: only a part of the function is a signal
// frame. kLimit: 4 GiB or more.
[[nodiscard]] Expected<void> check_written_rows(std::span<const FrameRow> rows);

}  // namespace windlass
