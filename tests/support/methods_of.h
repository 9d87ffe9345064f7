// All that a runtime says of code, for tests whose memory lies: whatever it reads, what it gives out is well-formed.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "runtimes/runtime_code.h"

namespace windlass::test {

// Asks for the method and its row at every `step`-th address. How many addresses have one; `use` is called for each.
inline std::size_t methods_of(
    runtimes::Runtime& runtime, std::uint64_t begin, std::uint64_t end, std::uint64_t step,
    const std::function<void(const runtimes::Method&, std::uint64_t pc)>& use = [](const auto&, auto) {}) {
  std::size_t found = 0;
  for (std::uint64_t pc = begin; pc < end; pc += step) {
    const auto method = runtime.method_at(pc);
    if (!method) continue;
    ++found;
    EXPECT_TRUE((*method)->contains(pc)) << pc;
    FrameRow row;
    const bool described = (*method)->row_at(pc, row).has_value();
    EXPECT_TRUE(!described || (row.begin <= pc && pc < row.end)) << pc;
    use(**method, pc);
  }
  return found;
}

}  // namespace windlass::test
