#include "os/code_history.h"

#include <gtest/gtest.h>

namespace windlass::os {
namespace {

constexpr std::uint64_t kMega = std::uint64_t{1} << 20;

std::uint32_t at(const CodeHistory& history, std::uint64_t address, std::uint64_t time) {
  const auto* piece = history.find(address, time);
  return piece != nullptr ? piece->function : 1000;
}

TEST(CodeHistory, ThePieceOfTheTimeCounts) {
  CodeHistory history;
  history.add({0x1000, 0x100, 10, 1});
  history.add({0x1080, 0x100, 20, 2});
  history.add({0x1000, 0x80, 30, CodeHistory::kGone});
  EXPECT_EQ(at(history, 0x1000, 9), 1000u);
  EXPECT_EQ(at(history, 0x10ff, 10), 1u);
  EXPECT_EQ(at(history, 0x10ff, 20), 2u);
  EXPECT_EQ(at(history, 0x107f, 29), 1u);
  EXPECT_EQ(at(history, 0x107f, 30), CodeHistory::kGone);
  EXPECT_EQ(at(history, 0x1180, 30), 1000u);
  EXPECT_EQ(history.find_first(0x10ff)->function, 1u);
  EXPECT_EQ(history.find_first(0x1180), nullptr);
}

// Of all sizes, at the ends of pages and of the address space.
TEST(CodeHistory, LargePiecesAndSmallOnes) {
  CodeHistory history;
  history.add({0, 0, 1, 7});
  history.add({kMega, 64 * kMega, 1, 1});
  history.add({2 * kMega - 1, 2, 2, 2});
  history.add({~std::uint64_t{0} - 15, 15, 2, 3});
  EXPECT_EQ(history.pieces().size(), 3u) << "one without a size is none";
  EXPECT_EQ(at(history, 2 * kMega - 2, 5), 1u);
  EXPECT_EQ(at(history, 2 * kMega - 1, 5), 2u);
  EXPECT_EQ(at(history, 2 * kMega, 5), 2u);
  EXPECT_EQ(at(history, 2 * kMega, 1), 1u);
  EXPECT_EQ(at(history, ~std::uint64_t{0} - 1, 5), 3u);
  EXPECT_EQ(at(history, ~std::uint64_t{0}, 5), 1000u);
  EXPECT_EQ(history.find_first(2 * kMega)->function, 1u);
  history.add({2 * kMega, 64 * kMega, 3, 4});
  EXPECT_EQ(at(history, 2 * kMega, 5), 4u) << "a large one over a small one";
}

TEST(CodeHistory, WhatIsInARange) {
  CodeHistory history;
  history.add({0x1000, 0x100, 1, 1});
  history.add({0x1100, 0x2000, 1, 2});
  history.add({kMega, 64 * kMega, 1, 3});
  const auto in = [&](std::uint64_t begin, std::uint64_t size) {
    unsigned found = 0;
    history.for_each_in(begin, size, [&](const auto& piece) { found |= 1u << piece.function; });
    return found;
  };
  EXPECT_EQ(in(0xf00, 0x100), 0u);
  EXPECT_EQ(in(0xf00, 0x101), 1u << 1);
  EXPECT_EQ(in(0x10ff, 2), 1u << 1 | 1u << 2);
  EXPECT_EQ(in(0x2000, 8), 1u << 2);
  EXPECT_EQ(in(2 * kMega, 8), 1u << 3);
  EXPECT_EQ(in(0, 128 * kMega), 1u << 1 | 1u << 2 | 1u << 3);
  EXPECT_EQ(in(0x1000, 0), 0u);
}

}  // namespace
}  // namespace windlass::os
