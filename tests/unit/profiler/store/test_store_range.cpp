#include "cli/store_range.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>

namespace windlass::cli {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond, kDay = 24 * kHour;
constexpr std::uint64_t kNow = 1'800'000'000 * kSecond;

class StoreRange : public ::testing::Test {
 protected:
  // A zone by its rule (tzset(3)), so that no files of zones are needed.
  void SetUp() override {
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
  }
  void TearDown() override {
    unsetenv("TZ");
    tzset();
  }
};

std::uint64_t lasts(const std::string& text) {
  const auto span = parse_range(text, kNow);
  EXPECT_TRUE(span.has_value()) << text;
  return span ? span->to - span->from : 0;
}

TEST_F(StoreRange, ADayEndsWhereTheNextBegins) {
  EXPECT_EQ(lasts("2026-11-27"), kDay);
  EXPECT_EQ(lasts("2026-03-29"), kDay - kHour) << "summer time begins";
  EXPECT_EQ(lasts("2026-10-25"), kDay + kHour) << "and ends";
  EXPECT_EQ(lasts("2026-10-25Z"), kDay);
  EXPECT_EQ(lasts("2026-12-31"), kDay);
  EXPECT_EQ(lasts("2026-11-27T23:59"), 60 * kSecond);
  EXPECT_EQ(lasts("2026-11-27T23:59:59Z"), kSecond);
  EXPECT_EQ(parse_range("2026-10-25", kNow)->to, parse_range("2026-10-26", kNow)->from);
  EXPECT_EQ(parse_range("2026-11-27", kNow)->from, parse_range("2026-11-26T23:00Z", kNow)->from);
}

TEST_F(StoreRange, RangesHaveBoundsOrNone) {
  EXPECT_EQ(parse_range("-1h", kNow), (TimeSpan{kNow - kHour, ~std::uint64_t{0}}));
  EXPECT_EQ(parse_range("-1h..-30m", kNow), (TimeSpan{kNow - kHour, kNow - kHour / 2}));
  EXPECT_EQ(parse_range("..", kNow), TimeSpan{});
  EXPECT_EQ(lasts("2026-11-27Z..2026-11-29Z"), 2 * kDay);
}

TEST_F(StoreRange, WhatIsNoneIsRefused) {
  for (const char* text : {"", "x", "-", "-x", "2026", "2026-13-01", "2026-02-30", "2026-02-29Z", "2026-11-27T25:00",
                           "2026-11-27T14:05x", "-1h..-2h", "2026-11-28..2026-11-27", "1900-01-01"})
    EXPECT_FALSE(parse_range(text, kNow).has_value()) << text;
}

}  // namespace
}  // namespace windlass::cli
