// Waits between tries grow, are bounded and random, and are no shorter than a server asks for.
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "profiler/spool/backoff.h"

namespace windlass::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

TEST(Backoff, DoublesUpToABound) {
  spool::Backoff backoff({.first = 1s, .most = 60s, .most_asked = 1h}, 1);
  milliseconds all = 1s;
  for (int i = 0; i < 100; ++i) {
    const milliseconds wait = backoff.failed();
    EXPECT_GE(wait, all / 2);
    EXPECT_LE(wait, all);
    all = std::min<milliseconds>(all * 2, 60s);
  }
  EXPECT_EQ(backoff.failures(), 100u);
  backoff.succeeded();
  EXPECT_EQ(backoff.failures(), 0u);
  EXPECT_LE(backoff.failed(), 1s);
}

TEST(Backoff, TwoMachinesDoNotComeBackTogether) {
  std::set<milliseconds> waits;
  for (std::uint64_t seed = 0; seed < 100; ++seed) waits.insert(spool::Backoff({.first = 10s}, seed).failed());
  EXPECT_GT(waits.size(), 50u);
  EXPECT_GT(*waits.rbegin() - *waits.begin(), 4s);
}

TEST(Backoff, WaitsAsLongAsTheServerAsks) {
  spool::Backoff backoff({.first = 1s, .most = 60s, .most_asked = 1h}, 1);
  EXPECT_EQ(backoff.failed(5min), 5min);
  EXPECT_GE(backoff.failed(1ms), 1s);
  EXPECT_EQ(backoff.failed(1000h), 1h);
}

TEST(RetryAfter, IsSecondsOrADate) {
  using spool::parse_retry_after;
  const auto now = std::chrono::system_clock::from_time_t(1'445'412'480);  // Wed, 21 Oct 2015 07:28:00 GMT
  EXPECT_EQ(parse_retry_after("120", now), 120s);
  EXPECT_EQ(parse_retry_after(" 0 ", now), 0s);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2015 07:29:30 GMT", now), 90s);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2015 07:00:00 GMT", now), 0s);
  for (const char* text : {"", "soon", "-1", "1.5", "12x", "Wed, 21 Oct 2015 07:29:30 CET", "99999999999999999999999"})
    EXPECT_FALSE(parse_retry_after(text, now).has_value()) << text;
  EXPECT_GT(parse_retry_after("9999999999", now), 1000h);  // no overflow
}

}  // namespace
}  // namespace windlass::testing
