#include "profiler/samples/rate_control.h"

#include <gtest/gtest.h>

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kStep = kSecond / 10;
constexpr Backlog kNone{}, kOld{RateControl::kTooOld, 0}, kFull{0, RateControl::kTooFull};

class RateControlTest : public testing::Test {
 protected:
  // Observes the same for so long, ten times a second. The halvings then.
  unsigned observe(const Backlog& backlog, std::uint64_t for_ns = 0) {
    const std::uint64_t end = now + for_ns;
    unsigned halvings = control.observe(now += kStep, backlog);
    while (now < end) halvings = control.observe(now += kStep, backlog);
    return halvings;
  }
  RateControl control{3};
  std::uint64_t now = 100 * kSecond;
};

TEST_F(RateControlTest, WithoutABacklogTheRateStays) {
  EXPECT_EQ(observe(kNone, 60 * kSecond), 0U);
  EXPECT_EQ(observe({RateControl::kTooOld - 1, RateControl::kTooFull - 0.01}, 60 * kSecond), 0U) << "within the bounds";
}

TEST_F(RateControlTest, ABacklogThatIsTooOldOrTooLargeHalvesTheRateAtOnce) {
  EXPECT_EQ(observe(kOld), 1U);
  RateControl other(3);
  EXPECT_EQ(other.observe(now, kFull), 1U);
}

TEST_F(RateControlTest, ABacklogThatStaysHalvesTheRateAgainUpToTheMost) {
  EXPECT_EQ(observe(kOld), 1U);
  EXPECT_EQ(observe(kOld, RateControl::kPatience - 2 * kStep), 1U) << "the first halving had no time yet";
  EXPECT_EQ(observe(kOld, 2 * kStep), 2U);
  EXPECT_EQ(observe(kOld, 60 * kSecond), 3U);
}

// What has come at the full rate takes its time.
TEST_F(RateControlTest, ABacklogThatShrinksHalvesTheRateOnce) {
  Backlog backlog{4 * RateControl::kTooOld, 0.9};
  EXPECT_EQ(observe(backlog), 1U);
  while (backlog.age_ns > RateControl::kTooOld) {
    backlog.age_ns -= kStep / 2;
    backlog.fill -= 0.001;
    ASSERT_EQ(observe(backlog), 1U);
  }
  backlog = {RateControl::kTooOld + kSecond, 0.9};
  EXPECT_EQ(observe(backlog, RateControl::kPatience), 2U) << "it grows again";
}

TEST_F(RateControlTest, CalmRaisesTheRateStepByStep) {
  EXPECT_EQ(observe(kFull, 60 * kSecond), 3U);
  EXPECT_EQ(observe(kNone, RateControl::kCalm - kStep), 3U);
  EXPECT_EQ(observe(kNone, 2 * kStep), 2U);
  EXPECT_EQ(observe(kNone, RateControl::kCalm - 2 * kStep), 2U);
  EXPECT_EQ(observe(kNone, 2 * kStep), 1U);
  EXPECT_EQ(observe(kNone, RateControl::kCalm), 0U);
  EXPECT_EQ(observe(kNone, 60 * kSecond), 0U);
}

TEST_F(RateControlTest, CalmThatIsInterruptedBeginsAnew) {
  EXPECT_EQ(observe(kOld), 1U);
  EXPECT_EQ(observe(kNone, RateControl::kCalm - 2 * kStep), 1U);
  EXPECT_EQ(observe({RateControl::kYoung, 0}), 1U) << "neither behind nor calm";
  EXPECT_EQ(observe(kNone, RateControl::kCalm - 2 * kStep), 1U);
  EXPECT_EQ(observe(kNone, 3 * kStep), 0U);
}

TEST_F(RateControlTest, ARateThatMayNotBeHalvedStays) {
  RateControl none(0);
  EXPECT_EQ(none.observe(now, kOld), 0U);
  EXPECT_EQ(none.observe(now + 60 * kSecond, kFull), 0U);
}

}  // namespace
}  // namespace windlass::profiler
