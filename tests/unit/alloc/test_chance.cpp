// What is sampled, and what samples stand for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "alloc/chance.h"

namespace windlass::test {
namespace {

using namespace windlass::alloc;

TEST(Chance, LogarithmAndExponentialAreThoseOfTheMathLibrary) {
  for (double x = 1; x > 1e-16; x *= 0.73) {
    EXPECT_NEAR(log_of(x), std::log(x), 1e-12 * std::abs(std::log(x)) + 1e-15) << x;
    EXPECT_NEAR(expm1_of(-x), std::expm1(-x), 1e-11 * x) << x;
    EXPECT_NEAR(expm1_of(-30 * x), std::expm1(-30 * x), 1e-11) << x;
  }
  EXPECT_EQ(expm1_of(-1e9), -1);
  EXPECT_EQ(log_of(1), 0);
}

TEST(Chance, DistancesHaveThePeriodAsMean) {
  std::uint64_t state = 12345;
  constexpr int kDraws = 200'000;
  constexpr double kPeriod = 4096;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto distance = static_cast<double>(next_distance(state, static_cast<std::uint64_t>(kPeriod)));
    ASSERT_GT(distance, 0);
    sum += distance;
    squares += distance * distance;
  }
  EXPECT_NEAR(sum / kDraws, kPeriod, 5 * kPeriod / std::sqrt(kDraws) + 1);
  EXPECT_NEAR(squares / kDraws, 2 * kPeriod * kPeriod, 0.05 * kPeriod * kPeriod);  // exponential, not regular
}

// The whole of it, for sizes far below and above the period: sums are what was allocated, within five deviations.
TEST(Chance, SumsAreUnbiased) {
  constexpr std::uint64_t kPeriod = 1000;
  for (const std::uint64_t size : {1u, 16u, 333u, 1000u, 2500u, 20000u}) {
    SCOPED_TRACE(size);
    std::uint64_t state = size;
    constexpr int kBlocks = 400'000;
    std::int64_t left = next_distance(state, kPeriod);
    double count = 0, bytes = 0;
    for (int i = 0; i < kBlocks; ++i) {
      left -= static_cast<std::int64_t>(size);
      if (left >= 0) continue;
      left = next_distance(state, kPeriod);
      const SizeOfSample sample(size, kPeriod, state);
      const Weight weight = sample.weight(kPeriod);
      count += static_cast<double>(weight.count);
      bytes += static_cast<double>(weight.bytes);
    }
    const double s = static_cast<double>(size), p = 1 - std::exp(-s / kPeriod);
    EXPECT_NEAR(count, kBlocks, 5 * std::sqrt(kBlocks * ((1 - p) / p + p / 4)));
    EXPECT_NEAR(bytes, kBlocks * s, 5 * std::sqrt(kBlocks * (s * s * (1 - p) / p + p / 4)));
  }
}

// As a block is freed, from what was kept.
TEST(Chance, ASampleHasTheSameWeightLater) {
  std::uint64_t state = 99;
  for (const std::uint64_t period : {1u, 100u, 512u << 10})
    for (std::uint64_t size = 0; size < 5000; size += 7) {
      const SizeOfSample sample(size, period, state);
      const Weight first = sample.weight(period), later = SizeOfSample(sample.word()).weight(period);
      ASSERT_EQ(first.count, later.count);
      ASSERT_EQ(first.bytes, later.bytes);
    }
}

TEST(Chance, EachStandsForItselfWithAPeriodOfOne) {
  std::uint64_t state = 1;
  const Weight weight = SizeOfSample(77, 1, state).weight(1);
  EXPECT_EQ(weight.count, 1u);
  EXPECT_EQ(weight.bytes, 77u);
}

}  // namespace
}  // namespace windlass::test
