#include "profiler/samples/work_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "support/use_up.h"

namespace windlass::profiler {
namespace {

constexpr std::int64_t kKept = 50'000'000;

TEST(WorkBudget, WithoutAShareThereIsNoBound) {
  WorkBudget budget;
  test::use_up_walking(budget, kKept);
  EXPECT_TRUE(budget.may_walk());
  EXPECT_TRUE(budget.begin());
}

// 5% of a CPU for 1,000 samples a second: 50 us each.
TEST(WorkBudget, ASampleEarnsItsShare) {
  WorkBudget budget(0.05, kKept);
  constexpr std::int64_t kOwed = 10'000'000;
  test::use_up_following(budget, kKept + kOwed);
  EXPECT_FALSE(budget.begin()) << "all has been used, and more";
  EXPECT_TRUE(budget.may_walk()) << "walking has its own";
  constexpr std::uint64_t kEnough = kOwed / 50'000;
  budget.earn(kEnough - 10);
  EXPECT_FALSE(budget.begin());
  budget.earn(kEnough + 900);  // the thread's clock may have run on before it was read
  EXPECT_TRUE(budget.begin());
}

TEST(WorkBudget, WhatIsNotUsedIsKeptUpToABound) {
  WorkBudget budget(0.001, kKept);  // 10 us a sample for walking
  budget.earn(1'000'000);
  test::use_up_walking(budget, kKept);
  EXPECT_FALSE(budget.may_walk());
  budget.earn(1'000'000);
  EXPECT_TRUE(budget.may_walk());
}

TEST(WorkBudget, LittleIsLeftOnceItIsToStop) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  WorkBudget budget;
  budget.end_at(monotonic_ns() + 3'600'000'000'000, ends[0]);
  EXPECT_TRUE(budget.may_walk());
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(budget.may_walk()) << "what takes a moment is still done";
  std::this_thread::sleep_for(std::chrono::nanoseconds(WorkBudget::kAfterStop));
  EXPECT_FALSE(budget.may_walk());
  EXPECT_FALSE(budget.begin());
  for (const int end : ends) ::close(end);
}

TEST(WorkBudget, NothingIsLeftAtItsEnd) {
  WorkBudget budget;
  budget.end_at(monotonic_ns() + 3'600'000'000'000);
  EXPECT_TRUE(budget.may_walk());
  EXPECT_TRUE(budget.begin());
  budget.end_at(monotonic_ns());
  EXPECT_FALSE(budget.may_walk());
  EXPECT_FALSE(budget.begin());
}

}  // namespace
}  // namespace windlass::profiler
