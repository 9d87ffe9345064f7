// What readers of runtimes are made of: memory by pages, ranges of their own code, and code with its rows.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "runtimes/described_code.h"
#include "runtimes/own_ranges.h"
#include "runtimes/paged_memory.h"

namespace windlass::runtimes {
namespace {

// Memory whose every byte is how often it was read, but for the page at 0x3000.
class ReadCountingMemory final : public Memory {
 public:
  mutable int reads = 0;
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    ++reads;
    std::memset(to, reads, size);
    return address + size <= 0x3000;
  }
};

TEST(PagedMemory, ReadsAPageOnce) {
  const auto counted = std::make_shared<ReadCountingMemory>();
  const PagedMemory memory(counted);
  std::array<std::uint8_t, 16> bytes{};
  ASSERT_TRUE(memory.read(0x1010, bytes.data(), bytes.size()));
  ASSERT_TRUE(memory.read(0x1ff0, bytes.data(), bytes.size()));
  EXPECT_EQ(counted->reads, 1);
  ASSERT_TRUE(memory.read(0x1ff8, bytes.data(), bytes.size()));
  EXPECT_EQ(bytes[7], 1);
  EXPECT_EQ(bytes[8], 2) << "of the next page";
  EXPECT_FALSE(memory.read(0x2ff8, bytes.data(), bytes.size()));
  EXPECT_FALSE(memory.read(0x3000, bytes.data(), bytes.size()));
  EXPECT_EQ(counted->reads, 4) << "what cannot be read may come to be";
  std::vector<std::byte> much(0x2000);
  ASSERT_TRUE(memory.read(0x1000, much.data(), much.size()));
  EXPECT_EQ(counted->reads, 5);
}

TEST(OwnRanges, WhatTouchesIsOneRange) {
  OwnRanges ranges;
  const auto range_at = [&](std::uint64_t address) {
    const auto found = ranges.at(address);
    return found ? std::pair(found->begin, found->end) : std::pair<std::uint64_t, std::uint64_t>();
  };
  ranges.add({0x1000, 0x2000});
  ranges.add({0x3000, 0x4000});
  ranges.add({0x8000, 0x9000});
  EXPECT_EQ(range_at(0x1fff), std::pair(0x1000ul, 0x2000ul));
  EXPECT_FALSE(ranges.at(0x2000));
  EXPECT_FALSE(ranges.at(0xfff));
  EXPECT_EQ(range_at(0x3000), std::pair(0x3000ul, 0x4000ul));
  ranges.add({0x2000, 0x3000});  // fills the gap
  EXPECT_EQ(range_at(0x1000), std::pair(0x1000ul, 0x4000ul));
  EXPECT_EQ(range_at(0x3fff), std::pair(0x1000ul, 0x4000ul));
  ranges.add({0x3800, 0x5000});  // overlaps the end
  ranges.add({0x1800, 0x1900});  // within
  EXPECT_EQ(range_at(0x4fff), std::pair(0x1000ul, 0x5000ul));
  EXPECT_FALSE(ranges.at(0x5000));
  EXPECT_FALSE(ranges.at(0x7fff));
  EXPECT_EQ(range_at(0x8fff), std::pair(0x8000ul, 0x9000ul));
  ranges.add({0x500, 0xa000});  // around all
  EXPECT_EQ(range_at(0x6000), std::pair(0x500ul, 0xa000ul));
}

TEST(DescribedCode, CountsItsRowsAndItsName) {
  DescribedCode none({}), some(std::vector<FrameRow>(5));
  EXPECT_EQ(some.bytes(), none.bytes() + 5 * sizeof(FrameRow));
  EXPECT_TRUE(some.may_be_outermost(0)) << "nothing says otherwise";
  some.name = "name";
  EXPECT_EQ(some.bytes(), none.bytes() + 5 * sizeof(FrameRow) + 4);
}

}  // namespace
}  // namespace windlass::runtimes
