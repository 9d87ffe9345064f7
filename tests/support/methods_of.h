// Reads everything that a runtime has about its code, for tests whose memory lies. The results must be well-formed,
// whatever was read.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>

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

// How many addresses have a row in a thousand machines that are made up, each with up to seven bits of its memory's
// `size` bytes changed at random. `open` makes the runtime of a memory.
template <typename Machine, typename Open>
std::size_t rows_of_changed_memory(std::size_t size, Open&& open, std::uint64_t begin, std::uint64_t end,
                                   std::uint64_t step) {
  std::mt19937 random(5);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t found = 0;
  for (int round = 0; round < 1000; ++round) {
    Machine machine;
    for (std::size_t i = random() % 8; i-- > 0;)
      machine.memory->bytes[random() % size] ^= static_cast<std::uint8_t>(1U << random() % 8);
    const std::unique_ptr<runtimes::Runtime> runtime = open(machine.memory);
    for (std::uint64_t pc = begin; pc < end; pc += step) {
      const auto method = runtime->method_at(pc);
      FrameRow row;
      if (method) found += (*method)->row_at(pc, row) ? 1 : 0;
    }
  }
  return found;
}

}  // namespace windlass::test
