#include "rows/known_rows.h"

#include <gtest/gtest.h>

#include "support/same_rows.h"

namespace windlass {
namespace {

FrameRow row_with(std::int32_t saved_at, RegisterNumber reg = 6) {
  FrameRow row;
  row.return_address = RegisterRule::at_cfa(-8);
  EXPECT_TRUE(row.registers.set(reg, RegisterRule::at_cfa(saved_at)));
  return row;
}

TEST(KnownRows, NumberStandsForAllButAddressesAndCfa) {
  KnownRows known;
  FrameRow row = row_with(-16);
  const std::uint32_t number = known.number_of(row);
  EXPECT_NE(number, 0U);
  row.begin = 4;
  row.end = 8;
  row.cfa = CfaRule::at(7, 32);
  EXPECT_EQ(known.number_of(row), number);
  EXPECT_NE(known.number_of(row_with(-24)), number);
  EXPECT_NE(known.number_of(row_with(-16, 3)), number);
  FrameRow other = row;
  other.signal_frame = true;
  EXPECT_NE(known.number_of(other), number);
  other = row;
  other.return_signed = true;
  EXPECT_NE(known.number_of(other), number);
  other = row;
  other.return_address = RegisterRule::at_cfa(-16);
  EXPECT_NE(known.number_of(other), number);
  EXPECT_EQ(known.number_of(row), number);
}

TEST(KnownRows, GivesTheRowAndItsNumber) {
  KnownRows known;
  const FrameRow row = row_with(-16);
  const std::uint32_t number = known.number_of(row);
  int given = 0;
  known.give({0x10, 0x20, grown(word_of(CfaRule::at(7, 16)), -32), number}, [&](const FrameRow& it) {
    ++given;
    EXPECT_TRUE(test::say_the_same(it, row));
    EXPECT_EQ(it.begin, 0x10U);
    EXPECT_EQ(it.end, 0x20U);
    EXPECT_EQ(it.cfa, CfaRule::at(7, -16));
    EXPECT_EQ(known.given(), number);
  });
  EXPECT_EQ(given, 1);
  EXPECT_EQ(known.given(), 0U);
}

TEST(KnownRows, RowsAreGivenTogetherAndInOrder) {
  KnownRows known;
  std::vector<std::uint64_t> begins;
  std::size_t calls = 0;
  const auto take = [&](std::span<const NumberedRow> rows) {
    ++calls;
    for (const NumberedRow& row : rows) begins.push_back(row.begin);
  };
  const NumberedRowSink sink(take);
  known.give_to(sink);
  known.give_waiting();
  EXPECT_EQ(calls, 0U);
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < 200; ++i) {
    all.push_back(i);
    known.add({i, i + 1, {}, 1});
  }
  EXPECT_EQ(calls, 3U);
  known.give_waiting();
  EXPECT_EQ(calls, 4U);
  EXPECT_EQ(begins, all);
}

TEST(KnownRows, FullUntilCleared) {
  KnownRows known;
  test::RowNumbers numbers;
  for (std::uint32_t i = 0; i < KnownRows::kMost; ++i) {
    EXPECT_FALSE(known.full());
    const FrameRow row = row_with(static_cast<std::int32_t>(i));
    EXPECT_TRUE(numbers.fits(row, known.number_of(row)));
  }
  EXPECT_EQ(numbers.size(), KnownRows::kMost);
  EXPECT_TRUE(known.full());
  EXPECT_EQ(known.number_of(row_with(-1)), 0U);
  EXPECT_NE(known.number_of(row_with(0)), 0U);
  known.clear();
  EXPECT_FALSE(known.full());
  EXPECT_GT(known.number_of(row_with(0)), KnownRows::kMost);  // no number comes again
}

}  // namespace
}  // namespace windlass
