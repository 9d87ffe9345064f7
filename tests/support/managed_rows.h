// Rows of made-up functions for code managers, at offsets from the function's begin.
#pragma once

#include <cstdint>
#include <vector>

#include "windlass/backtrace.h"
#include "windlass/frame_row.h"

namespace windlass::test {

// A row whose CFA is sp + `offset`, and which saves the frame pointer there and `saved` more registers.
inline FrameRow managed_row(std::uint64_t begin, std::uint64_t end, std::int32_t offset, unsigned saved = 0) {
  FrameRow row;
  row.begin = begin;
  row.end = end;
  row.cfa = CfaRule::at(Registers::sp_number(kOwnArchitecture), offset);
  row.return_address = RegisterRule::at_cfa(-8);
  for (unsigned i = 0; i < saved; ++i)
    (void)row.registers.set(static_cast<RegisterNumber>(20 + i), RegisterRule::at_cfa(-16 - 8 * static_cast<int>(i)));
  return row;
}

// Entry, one push, the body, and the return at the end.
inline std::vector<FrameRow> managed_rows(std::uint64_t size, std::int32_t frame) {
  return {managed_row(0, 1, 8), managed_row(1, 5, 16, 1), managed_row(5, size - 1, frame, 1),
          managed_row(size - 1, size, 8)};
}

}  // namespace windlass::test
