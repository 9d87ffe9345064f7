// The sizes of the ring and of the counters of stacks for rates and machines.
#include <gtest/gtest.h>

#include "profiler/kernel/event_ring.h"

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(RingSize, GrowsWithTheRateAndTheCpus) {
  EXPECT_EQ(ring_size(997, 2, 64 * kMiB, true), 32 * kMiB);
  EXPECT_EQ(ring_size(997, 64, 64 * kMiB, true), 64 * kMiB);
  EXPECT_EQ(ring_size(4999, 64, 64 * kMiB, true), 256 * kMiB);
}

// A slow rate bounds raw stacks, unless other events come at rates of their own.
TEST(RingSize, IsSmallForSlowTicksAlone) {
  EXPECT_EQ(ring_size(19, 2, 64 * kMiB, true), 8 * kMiB);
  EXPECT_EQ(ring_size(19, 2, 64 * kMiB, false), 32 * kMiB);
  EXPECT_EQ(ring_size(19, 64, 64 * kMiB, true), 32 * kMiB);
}

TEST(RingSize, HasBounds) {
  EXPECT_EQ(ring_size(49'999, 4096, 64 * kMiB, true), 256 * kMiB);
  EXPECT_EQ(ring_size(1, 1, 0, false), 8 * kMiB);
}

TEST(MostHalvings, LeaveEightSamplesASecond) {
  EXPECT_EQ(most_halvings(1), 0U);
  EXPECT_EQ(most_halvings(15), 0U);
  EXPECT_EQ(most_halvings(16), 1U);
  EXPECT_EQ(most_halvings(99), 3U);
  EXPECT_EQ(most_halvings(997), 6U);
  EXPECT_EQ(most_halvings(49'999), 7U) << "a sample's head has no more room";
}

TEST(CountedStacks, AreThoseOfHalfAMinute) {
  EXPECT_EQ(counted_stacks(997, 2, true), 1U << 16);
  EXPECT_EQ(counted_stacks(997, 8, true), 1U << 18);
  EXPECT_EQ(counted_stacks(19, 1, true), 1U << 14);
  EXPECT_EQ(counted_stacks(49'999, 4096, true), 1U << 18);
}

// Nobody knows how often other events come.
TEST(CountedStacks, AreTheMostForOtherEvents) { EXPECT_EQ(counted_stacks(19, 1, false), 1U << 18); }

}  // namespace
}  // namespace windlass::profiler
