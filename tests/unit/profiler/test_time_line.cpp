// The times of samples: kept within their bound, given to the samples that are meant.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "profiler/samples/time_line.h"

namespace windlass::profiler {
namespace {

constexpr std::size_t kPlenty = std::size_t{1} << 20;

class Times : public testing::Test {
 protected:
  // A profile of samples with these numbers and counts.
  profile::Profile write(const TimeLine& line, const std::vector<std::pair<std::uint32_t, std::uint64_t>>& samples,
                         std::uint64_t start = 0, std::uint64_t per_time = 1) const {
    profile::Profile p;
    p.events[0].per_time = per_time;
    std::vector<std::uint32_t> numbers;
    for (const auto& [number, count] : samples) {
      numbers.push_back(number);
      p.samples.push_back({.count = count});
    }
    line.write(p, numbers, start, sample_of());
    return p;
  }
  static std::vector<std::uint64_t> begins(const profile::Profile& p, std::size_t sample) {
    std::vector<std::uint64_t> found;
    for (const auto& time : times_of(p, p.samples[sample])) found.push_back(time.begin);
    return found;
  }
  [[nodiscard]] TimeLine::SampleOf sample_of() const {
    return [this](const wl_stack_key& key) -> std::optional<std::uint32_t> {
      const auto known = known_.find(key.hash);
      return known != known_.end() ? std::optional(known->second) : std::nullopt;
    };
  }
  using List = std::vector<std::uint64_t>;

  std::map<std::uint64_t, std::uint32_t> known_;  // the sample of a key, by its hash
};

TEST_F(Times, ReachTheSampleOfTheirNumberInOrder) {
  TimeLine line(kPlenty);
  for (const std::uint64_t time : {1'000, 5'000, 3'000}) line.add(7, time);
  line.add(2, 4'000);
  line.add(3, 4'000);  // is not in the profile
  const auto p = write(line, {{2, 1}, {7, 3}}, 1'000);
  EXPECT_EQ(begins(p, 0), List{3'000});
  EXPECT_EQ(begins(p, 1), (List{0, 2'000, 4'000}));
}

TEST_F(Times, OfAKeyWaitForItsSample) {
  TimeLine line(kPlenty);
  line.add({11, 1, 1}, 100, 50);
  line.add({12, 1, 1}, 200, 0);
  EXPECT_EQ(begins(write(line, {{0, 9}}), 0), List{});
  known_[11] = 0;
  const auto p = write(line, {{0, 9}});
  EXPECT_EQ(times_of(p, p.samples[0]).front(), (profile::SampleTime{100, 50}));
  EXPECT_EQ(p.times.size(), 1u);
}

// The same hash of another thread is another key.
TEST_F(Times, KeysAreOfThreads) {
  TimeLine line(kPlenty);
  line.add({11, 1, 1}, 100, 0);
  line.add({11, 1, 2}, 200, 0);
  const auto p = [&] {
    profile::Profile made;
    made.events[0].per_time = 1;
    made.samples = {{.count = 5}, {.count = 5}};
    line.write(made, std::vector<std::uint32_t>{0, 1}, 0,
               [](const wl_stack_key& key) { return std::optional(key.tid - 1); });
    return made;
  }();
  EXPECT_EQ(begins(p, 0), List{100});
  EXPECT_EQ(begins(p, 1), List{200});
}

TEST_F(Times, KeysMeanWhatTheyMeantWhenSettled) {
  TimeLine line(kPlenty);
  known_[11] = 0;
  line.add({11, 1, 1}, 100, 0);
  line.settle(sample_of());
  known_[11] = 1;
  line.add({11, 1, 1}, 200, 0);
  const auto p = write(line, {{0, 1}, {1, 1}});
  EXPECT_EQ(begins(p, 0), List{100});
  EXPECT_EQ(begins(p, 1), List{200});
}

TEST_F(Times, WhatIsLentGoesAgain) {
  TimeLine line(kPlenty);
  line.add(0, 100);
  line.lend();
  line.add(0, 200);
  EXPECT_EQ(begins(write(line, {{0, 9}}), 0), (List{100, 200}));
  line.take_back();
  EXPECT_EQ(begins(write(line, {{0, 9}}), 0), List{100});
}

TEST_F(Times, NeverMoreThanTheCount) {
  TimeLine line(kPlenty);
  for (std::uint64_t time = 1; time <= 10; ++time) line.add(0, time);
  EXPECT_EQ(write(line, {{0, 4}}).times.size(), 4u);
  EXPECT_EQ(write(line, {{0, 500}}, 0, 100).times.size(), 5u) << "each stands for a hundred";
}

TEST_F(Times, EventsWithoutTimesGetNone) {
  TimeLine line(kPlenty);
  line.add(0, 5);
  EXPECT_EQ(write(line, {{0, 4}}, 0, 0).times.size(), 0u);
}

TEST_F(Times, TheOldestAreGivenUp) {
  constexpr std::uint64_t kTimes = 200'000;
  constexpr std::size_t kBytes = std::size_t{256} << 10;
  TimeLine line(kBytes);
  for (std::uint64_t i = 1; i <= kTimes; ++i) {
    if (i % 10'000 == 0) line.settle(sample_of());
    line.add(i % 3 == 0 ? 1 : 0, i * 1'000'000);
  }
  const auto p = write(line, {{0, kTimes}, {1, kTimes}});
  EXPECT_GT(line.given_up(), 0u);
  EXPECT_EQ(p.times.size() + line.given_up(), kTimes);
  for (const auto& time : p.times) EXPECT_GT(time.begin, line.first_kept());
  EXPECT_EQ(begins(p, 0).back(), kTimes * 1'000'000) << "the newest are kept";
  EXPECT_GT(p.times.size(), kBytes / 12);
}

// All times that were given up lie before the first that is kept, and the two numbers say where the cut is.
TEST_F(Times, WhatWasGivenUpEndsWhereTheRestBegins) {
  TimeLine line(std::size_t{64} << 10);
  EXPECT_EQ(line.given_up(), 0u);
  EXPECT_EQ(line.first_kept(), 0u);
  std::uint64_t cuts = 0;
  for (std::uint64_t i = 1; i <= 100'000; ++i) {
    const std::uint64_t before = line.given_up();
    line.add(0, i * 1'000);
    if (line.given_up() == before) continue;
    ++cuts;
    ASSERT_EQ(line.first_kept(), line.given_up() * 1'000) << "the last that was given up";
    const auto kept = begins(write(line, {{0, 1'000'000}}), 0);
    ASSERT_EQ(kept.front(), line.first_kept() + 1'000);
    ASSERT_EQ(kept.size(), i - line.given_up());
    ASSERT_GT(kept.size(), i / 2 < 4'000 ? i / 2 : 4'000) << "no more is given up than has to be";
  }
  EXPECT_GT(cuts, 3u);
}

// Keys of stacks that never come again do not fill the memory.
TEST_F(Times, KeysAreGivenUpWithTheirTimes) {
  TimeLine line(std::size_t{256} << 10);
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    if (i % 5'000 == 0) line.settle(sample_of());
    known_[i] = 0;
    line.add({i, 1, 1}, i, 0);
  }
  const auto p = write(line, {{0, 1'000'000}});
  EXPECT_EQ(p.times.size() + line.given_up(), 200'000u);
  EXPECT_GT(p.times.size(), 1'000u);
}

TEST_F(Times, KeysCountAsMemory) {
  TimeLine line(std::size_t{1} << 20);
  for (std::uint64_t i = 0; i < 60'000; ++i) line.add({i, 1, 1}, i, 0);
  EXPECT_GT(line.given_up(), 0u);
  line.settle(sample_of());
  const std::uint64_t before = line.given_up();
  for (std::uint64_t i = 0; i < 20'000; ++i) line.add(0, i);
  EXPECT_EQ(line.given_up(), before) << "what keys took is free again";
}

TEST_F(Times, OfAnyDistanceComeBack) {
  TimeLine line(kPlenty);
  const List times{~std::uint64_t{0}, 0, std::uint64_t{1} << 63, 1, 127, 128, (std::uint64_t{1} << 35) + 1};
  for (const std::uint64_t time : times) line.add({1, 1, 1}, time, time);
  known_[1] = 0;
  const auto p = write(line, {{0, 100}});
  List sorted = times;
  std::ranges::sort(sorted);
  EXPECT_EQ(begins(p, 0), sorted);
  for (const auto& time : p.times) EXPECT_EQ(time.lasted, time.begin);
}

}  // namespace
}  // namespace windlass::profiler
