// Parts of a recording become intervals: with clocks that are set, and with a store that takes nothing for a while.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "cli/agent_writer.h"
#include "support/events_profile.h"

namespace windlass::testing {
namespace {

constexpr std::uint64_t kUnixSecond = 1'000'000'000;
constexpr std::uint64_t kBegin = 1'800'000'000 * kUnixSecond;
constexpr std::uint64_t kSamplesOfPart = 48;  // of events_profile()

class ListingStore final : public store::ProfileStore {
 public:
  Expected<bool> append(const store::Batch& batch) override {
    if (refuse-- > 0) return fail(ErrorCode::kSystem, "busy", 0);
    refuse = 0;
    times.emplace_back(batch.begin_ns, batch.end_ns);
    durations.push_back(batch.profile.duration_ns);
    samples += profile::count_samples(batch.profile);
    lost += batch.profile.lost;
    return true;
  }
  Expected<std::optional<store::Extent>> extent() override {
    if (times.empty()) return std::nullopt;
    return store::Extent{times.front().first, times.back().second};
  }
  Expected<std::vector<std::string>> labels() override { return none(); }
  Expected<std::vector<std::string>> values(std::string_view) override { return none(); }
  Expected<std::vector<store::Series>> series(const store::Filter&, std::uint64_t, std::uint64_t,
                                              std::uint64_t) override {
    return none();
  }
  Expected<std::vector<store::Total>> totals(std::string_view, const store::Filter&, std::uint64_t,
                                             std::uint64_t) override {
    return none();
  }
  Expected<store::Stacks> stacks(const store::Filter&, std::uint64_t, std::uint64_t) override { return none(); }
  Expected<store::Frames> frames(std::span<const std::uint64_t>) override { return none(); }

  int refuse = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> times;
  std::vector<std::uint64_t> durations;
  std::uint64_t samples = 0, lost = 0;

 private:
  static Failure none() { return fail(ErrorCode::kNotFound, "nothing", 0); }
};

profile::Profile part_of(std::uint64_t duration_ns) {
  profile::Profile part = events_profile();
  part.duration_ns = duration_ns;
  return part;
}

class AgentWriterTest : public ::testing::Test {
 protected:
  // All parts are there before the writer runs, on this thread.
  cli::AgentWriter& write(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ends_and_durations,
                          std::uint64_t interval_ns) {
    writer_.emplace(
        &store_, [](profile::Profile&) {},
        cli::AgentWriterOptions{.host = "here",
                                .start_unix_ns = kBegin,
                                .interval_ns = interval_ns,
                                .scales = scales_,
                                .counted = [this](const cli::StoreCounters& now) { counters_ = now; }});
    for (const auto& [end, duration] : ends_and_durations) writer_->add(part_of(duration), end);
    writer_->end();
    writer_->run();
    return *writer_;
  }

  ListingStore store_;
  std::vector<std::uint64_t> scales_;
  std::optional<cli::AgentWriter> writer_;
  cli::StoreCounters counters_;
};

TEST_F(AgentWriterTest, IntervalsFollowEachOther) {
  // Readings of the two clocks are some microseconds apart.
  write({{kBegin + 5'000'100'000, 5 * kUnixSecond},
         {kBegin + 10'000'000'000, 4'999'950'000},
         {kBegin + 15'000'200'000, 5 * kUnixSecond},
         {kBegin + 20'000'000'000, 5 * kUnixSecond}},
        10 * kUnixSecond);
  ASSERT_EQ(store_.times.size(), 2u);
  EXPECT_EQ(store_.times[0], std::pair(kBegin + 100'000, kBegin + 10 * kUnixSecond));
  EXPECT_EQ(store_.times[1], std::pair(kBegin + 10 * kUnixSecond, kBegin + 20 * kUnixSecond));
  EXPECT_EQ(store_.samples, 4 * kSamplesOfPart);
  EXPECT_EQ(counters_.samples, 4 * kSamplesOfPart);
  EXPECT_EQ(counters_.intervals, 2u);
  EXPECT_EQ(counters_.oldest_ns, kBegin + 100'000);
}

// The clock is set back by an hour, and then forth by two, in the middle of intervals.
TEST_F(AgentWriterTest, NoIntervalHasTwoClocks) {
  const std::uint64_t back = kBegin - 3600 * kUnixSecond, forth = kBegin + 3600 * kUnixSecond;
  write({{kBegin + 1 * kUnixSecond, kUnixSecond},
         {kBegin + 2 * kUnixSecond, kUnixSecond},
         {back + 3 * kUnixSecond, kUnixSecond},
         {back + 4 * kUnixSecond, kUnixSecond},
         {forth + 5 * kUnixSecond, kUnixSecond}},
        10 * kUnixSecond);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected{
      {kBegin, kBegin + 2 * kUnixSecond},
      {back + 2 * kUnixSecond, back + 4 * kUnixSecond},
      {forth + 4 * kUnixSecond, forth + 5 * kUnixSecond}};
  EXPECT_EQ(store_.times, expected);
  EXPECT_EQ(store_.durations, (std::vector<std::uint64_t>{2 * kUnixSecond, 2 * kUnixSecond, kUnixSecond}));
  EXPECT_EQ(store_.samples, 5 * kSamplesOfPart);
}

// A part is as long as the agent was stopped: SIGSTOP takes samples, not time.
TEST_F(AgentWriterTest, ALongPartIsOneInterval) {
  write({{kBegin + 1 * kUnixSecond, kUnixSecond},
         {kBegin + 61 * kUnixSecond, 60 * kUnixSecond},
         {kBegin + 62 * kUnixSecond, kUnixSecond}},
        kUnixSecond);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected{
      {kBegin, kBegin + kUnixSecond},
      {kBegin + kUnixSecond, kBegin + 61 * kUnixSecond},
      {kBegin + 61 * kUnixSecond, kBegin + 62 * kUnixSecond}};
  EXPECT_EQ(store_.times, expected);
}

TEST_F(AgentWriterTest, WhatDoesNotFitIsCounted) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  for (std::uint64_t i = 1; i <= cli::AgentWriter::kMostParts + 3; ++i)
    parts.emplace_back(kBegin + i * kUnixSecond, kUnixSecond);
  cli::AgentWriter& writer = write(parts, 3600 * kUnixSecond);
  EXPECT_EQ(writer.dropped_samples(), 3 * kSamplesOfPart);
  EXPECT_EQ(store_.samples, cli::AgentWriter::kMostParts * kSamplesOfPart);
  EXPECT_EQ(store_.lost, 3 * kSamplesOfPart + parts.size() * events_profile().lost);
  EXPECT_EQ(store_.times.at(0).first, kBegin) << "their time is that of the interval";
}

// Of page-faults@10, a sample counts ten page faults.
TEST_F(AgentWriterTest, ASampleOfManyEventsIsOneSample) {
  scales_ = {10, 1};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  for (std::uint64_t i = 1; i <= cli::AgentWriter::kMostParts + 1; ++i)
    parts.emplace_back(kBegin + i * kUnixSecond, kUnixSecond);
  cli::AgentWriter& writer = write(parts, kUnixSecond);
  constexpr std::uint64_t kTaken = 40 / 10 + 8;  // of events_profile()
  EXPECT_EQ(writer.dropped_samples(), kTaken);
  EXPECT_EQ(counters_.samples, cli::AgentWriter::kMostParts * kTaken);
  EXPECT_EQ(store_.samples, cli::AgentWriter::kMostParts * kSamplesOfPart) << "the store has what was counted";
}

TEST_F(AgentWriterTest, RefusalsAreCounted) {
  store_.refuse = 2;
  write({{kBegin + 1 * kUnixSecond, kUnixSecond},
         {kBegin + 2 * kUnixSecond, kUnixSecond},
         {kBegin + 3 * kUnixSecond, kUnixSecond}},
        kUnixSecond);
  EXPECT_EQ(counters_.refusals, 2u);
  EXPECT_EQ(counters_.waiting_intervals, 0u);
  EXPECT_EQ(counters_.dropped, 0u);
  EXPECT_EQ(store_.samples, 3 * kSamplesOfPart);
}

}  // namespace
}  // namespace windlass::testing
