// How long threads wait, by switch records of perf events, made by hand.
#include "profiler/samples/perf_waits.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace windlass::test {
namespace {

using profiler::PerfWaits;

constexpr std::uint16_t kEvent = 3;
constexpr std::uint32_t kProcess = 10;
enum Kind : std::uint16_t {
  kIn = 0,
  kOut = PERF_RECORD_MISC_SWITCH_OUT,
  kPreempted = PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT
};

class PerfWaitsTest : public testing::Test {
 protected:
  explicit PerfWaitsTest(std::uint64_t shortest = 0) : waits_(kEvent, shortest) {}

  void hold(std::uint32_t tid, std::uint64_t time) {
    wl_stack_event event{};
    event.head.type = WL_EVENT_STACK;
    event.head.event = kEvent;
    event.head.time = time;
    event.head.tgid = kProcess;
    event.head.tid = tid;
    event.user_frames = 1;
    PerfWaits::Event words(sizeof event / 8 + 1);
    std::memcpy(words.data(), &event, sizeof event);
    waits_.hold(std::move(words));
  }
  std::optional<wl_stack_event> give(Kind kind, std::uint32_t tid, std::uint64_t time) {
    struct Record {
      perf_event_header header;
      std::uint32_t pid, tid;
      std::uint64_t time, id;
    } record{{PERF_RECORD_SWITCH, kind, sizeof(Record)}, kProcess, tid, time, 1};
    bool known = false;
    const auto event = waits_.on_switch(std::as_bytes(std::span(&record, 1)), known);
    EXPECT_TRUE(known);
    if (!event) return std::nullopt;
    wl_stack_event stack{};
    std::memcpy(static_cast<void*>(&stack), event->data(), sizeof stack);
    return stack;
  }
  // (thread, begin, length) of those that have ended.
  std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> settle(std::uint64_t time) {
    std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> ended;
    waits_.settle(time, [&](const PerfWaits::Ended& wait) {
      EXPECT_EQ(wait.event, kEvent);
      ended.emplace_back(wait.key.tid, wait.since, wait.lasted);
    });
    return ended;
  }
  std::map<std::uint64_t, std::uint64_t> counts(bool clear) {  // of each key's hash: ns
    std::map<std::uint64_t, std::uint64_t> counts;
    waits_.for_each_count(
        [&](const wl_stack_key& key, const wl_count& count) {
          EXPECT_EQ(count.count, 1u);
          counts[key.hash] += count.value;
        },
        clear);
    return counts;
  }

  PerfWaits waits_;
};

class LongPerfWaits : public PerfWaitsTest {
 protected:
  LongPerfWaits() : PerfWaitsTest(50) {}
};

TEST_F(PerfWaitsTest, LastFromTheSwitchToTheReturn) {
  hold(7, 99);
  const auto begun = give(kOut, 7, 100);
  ASSERT_TRUE(begun.has_value());
  EXPECT_EQ(begun->user_frames, 1u);
  EXPECT_EQ(begun->head.reason, WL_WAIT_OTHER);
  EXPECT_FALSE(give(kIn, 7, 350).has_value());
  EXPECT_EQ(settle(1000), (std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>>{{7, 100, 250}}));
  EXPECT_EQ(counts(true), (std::map<std::uint64_t, std::uint64_t>{{begun->hash, 250}}));
  EXPECT_TRUE(counts(true).empty());
}

// Its ring was full.
TEST_F(PerfWaitsTest, WithoutASampleHaveTheirTimeAndNoFrames) {
  const auto begun = give(kPreempted, 7, 100);
  ASSERT_TRUE(begun.has_value());
  EXPECT_EQ(begun->head.type, WL_EVENT_STACK);
  EXPECT_EQ(begun->head.event, kEvent);
  EXPECT_EQ(begun->head.reason, WL_WAIT_PREEMPTED);
  EXPECT_EQ(begun->head.tgid, kProcess);
  EXPECT_EQ(begun->head.tid, 7u);
  EXPECT_EQ(begun->head.time, 100u);
  EXPECT_EQ(begun->end, WL_END_NO_TIME);
  EXPECT_EQ(begun->user_frames + begun->kernel_frames, 0);
  EXPECT_FALSE(give(kIn, 7, 130).has_value());
  EXPECT_EQ(settle(1000).size(), 1u);
  EXPECT_EQ(counts(true).at(begun->hash), 30u);
}

// A thread leaves one CPU and returns on another, whose ring is read first.
TEST_F(PerfWaitsTest, AreSettledInTheOrderOfTime) {
  (void)give(kIn, 7, 350);
  (void)give(kIn, 7, 950);
  (void)give(kOut, 7, 100);
  (void)give(kOut, 8, 200);
  EXPECT_EQ(settle(300).size(), 0u) << "none has ended by then";
  (void)give(kOut, 7, 600);
  const std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> expected = {{7, 100, 250}, {7, 600, 350}};
  EXPECT_EQ(settle(1000), expected);
}

TEST_F(LongPerfWaits, LeaveOutShorterOnes) {
  for (const std::uint64_t length : {49, 50}) {
    (void)give(kOut, 7, 1000);
    (void)give(kIn, 7, 1000 + length);
    EXPECT_EQ(settle(5000).size(), length == 50 ? 1u : 0u);
  }
  EXPECT_EQ(counts(true).size(), 1u);
}

TEST_F(LongPerfWaits, GoOnUntilTheRecordingEnds) {
  const auto first = give(kOut, 7, 100), second = give(kOut, 8, 170);
  (void)settle(200);
  waits_.stop(200);
  EXPECT_EQ(counts(false), (std::map<std::uint64_t, std::uint64_t>{{first->hash, 100}})) << "the other one is short";
  std::size_t waiting = 0;
  waits_.for_each_waiting(
      [&](const profiler::SampleSource::Waiting& wait) { waiting += wait.since == 100 || wait.since == 170 ? 1 : 0; });
  EXPECT_EQ(waiting, 2u);
  EXPECT_NE(first->hash, second->hash);
}

TEST_F(PerfWaitsTest, OfARecordThatIsCutOffAreUnknown) {
  const std::vector<std::byte> bytes(23);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    bool known = true;
    EXPECT_FALSE(waits_.on_switch(std::span(bytes).first(size), known).has_value());
    EXPECT_FALSE(known) << size;
  }
}

}  // namespace
}  // namespace windlass::test
