// A whole function of code without rows, followed once from its start along all ways. That gives the rows of all of its
// instructions. A search from one instruction (search.h) finds no way where functions are large, or keep no registers
// for their callers: GraalVM's native images.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/address_range.h"
#include "flow/synthesis.h"

namespace windlass::flow {

struct WholeFunction {
  AddressRange range;                // Rows or not, it is about this code.
  std::vector<FrameRow> rows;        // Ascending, with gaps. None: nothing is proved there.
  std::vector<std::byte> code = {};  // Where who keeps it wants to compare it: the bytes of the range, else none.
  // A thread that has just been made may stand behind a system call. It has no caller, whatever the row says.
  bool calls_system = false;

  // The row at `address`; null: none is proved.
  [[nodiscard]] const FrameRow* find(std::uint64_t address) const {
    const auto row = std::ranges::upper_bound(rows, address, {}, &FrameRow::end);
    return row != rows.end() && row->begin <= address ? &*row : nullptr;
  }
};

// The function around `address`. Where it may begin and end is seen by padding, alignment and mappings. The rows are
// proved by the returns that are reached from the start: each gives back the frame exactly. So does each jump to
// another function. Had the function begun elsewhere, the returns would not.
//
// Takes milliseconds and allocates: not for signal handlers. The work is bounded. The stack is not asked.
[[nodiscard]] WholeFunction whole_function(const CodeSource& source, std::uint64_t address);

}  // namespace windlass::flow
