// Records of switches as perf_event_open(2) lays them out, made waits.
#include "profiler/samples/perf_waits.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <cerrno>
#include <cstring>

#include "base/registers.h"

namespace windlass::profiler {
namespace {

constexpr std::uint16_t kEvent = 3;
constexpr std::uint32_t kTgid = 10, kTid = 11;
constexpr std::uint16_t kIn = 0, kOut = PERF_RECORD_MISC_SWITCH_OUT;
constexpr std::uint16_t kPreempted = kOut | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;

struct Waits : testing::Test {
  PerfWaits waits{kEvent, 100};
  std::vector<PerfWaits::Ended> ended;

  std::optional<PerfWaits::Event> on_switch(std::uint16_t misc, std::uint64_t time, std::uint32_t tid = kTid,
                                            std::uint32_t tgid = kTgid) {
    const struct {
      perf_event_header header;
      std::uint32_t tgid, tid;
      std::uint64_t time, id;
    } record{{PERF_RECORD_SWITCH, misc, 32}, tgid, tid, time, 1};
    bool known = false;
    auto event = waits.on_switch(std::as_bytes(std::span(&record, 1)), known);
    EXPECT_TRUE(known);
    return event;
  }
  void hold(std::uint64_t rax) {
    PerfWaits::Event event(sizeof(wl_raw_event) / 8);
    auto& raw = *reinterpret_cast<wl_raw_event*>(event.data());
    raw.head.type = WL_EVENT_RAW;
    raw.head.event = kEvent;
    raw.head.tgid = kTgid;
    raw.head.tid = kTid;
    raw.machine = WL_MACHINE_X86_64;
    raw.regs[x86_64::kRax] = rax;
    waits.hold(std::move(event));
  }
  void settle(std::uint64_t time) {
    waits.settle(time, [this](const PerfWaits::Ended& wait) { ended.push_back(wait); });
  }
  std::uint64_t sum() {
    std::uint64_t all = 0;
    waits.for_each_count([&](const wl_stack_key&, const wl_count& count) { all += count.value; }, false);
    waits.for_each_waiting([&](const SampleSource::Waiting& wait) { all += wait.lasted; });
    return all;
  }
  static const wl_event_head& head(const PerfWaits::Event& event) {
    return *reinterpret_cast<const wl_event_head*>(event.data());
  }
};

TEST_F(Waits, AStackLastsUntilTheReturn) {
  hold(static_cast<std::uint32_t>(-ENOSYS));
  const auto event = on_switch(kOut, 1000);
  ASSERT_TRUE(event);
  EXPECT_EQ(head(*event).reason, WL_WAIT_OTHER);
  on_switch(kIn, 1500);
  settle(2000);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].since, 1000u);
  EXPECT_EQ(ended[0].lasted, 500u);
  EXPECT_EQ(ended[0].key.hash, reinterpret_cast<const wl_raw_event*>(event->data())->hash);
  EXPECT_EQ(sum(), 500u);
}

TEST_F(Waits, Reasons) {
  hold(0);
  EXPECT_EQ(head(on_switch(kOut, 1000).value()).reason, WL_WAIT_FAULT);
  hold(0);
  EXPECT_EQ(head(on_switch(kPreempted, 2000).value()).reason, WL_WAIT_PREEMPTED);
}

TEST_F(Waits, ALostSampleIsCountedWithoutFrames) {
  const auto event = on_switch(kOut, 1000);
  ASSERT_TRUE(event);
  const auto& stack = *reinterpret_cast<const wl_stack_event*>(event->data());
  EXPECT_EQ(stack.head.type, WL_EVENT_STACK);
  EXPECT_EQ(stack.head.event, kEvent);
  EXPECT_EQ(stack.head.tgid, kTgid);
  EXPECT_EQ(stack.head.tid, kTid);
  EXPECT_EQ(stack.head.time, 1000u);
  EXPECT_EQ(stack.head.reason, 0u) << "nothing tells";
  EXPECT_EQ(stack.user_frames + stack.kernel_frames + stack.interpreted_frames + stack.taken_words, 0u);
  EXPECT_NE(stack.end, WL_END_COMPLETE);
  on_switch(kIn, 1700);
  settle(2000);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].key.hash, stack.hash);
  EXPECT_EQ(ended[0].event, kEvent);
  EXPECT_EQ(sum(), 700u);
  EXPECT_EQ(head(on_switch(kPreempted, 3000).value()).reason, WL_WAIT_PREEMPTED);
}

TEST_F(Waits, AThreadThatHasEndedDoesNotWait) {
  EXPECT_FALSE(on_switch(kOut, 1000, ~0u, ~0u));
  EXPECT_FALSE(on_switch(kOut, 1000, 0, 0));
  settle(2000);
  waits.stop(5000);
  EXPECT_EQ(sum(), 0u);
}

TEST_F(Waits, AReturnMayComeFirst) {
  on_switch(kIn, 1500);  // out of another CPU's ring
  on_switch(kOut, 1000);
  settle(2000);
  EXPECT_EQ(sum(), 500u);
}

TEST_F(Waits, ShortOnesAreNotCounted) {
  on_switch(kOut, 1000);
  on_switch(kIn, 1099);
  on_switch(kOut, 2000);
  on_switch(kIn, 2100);
  settle(3000);
  EXPECT_EQ(sum(), 100u);
}

TEST_F(Waits, OneThatGoesOnLastsUntilTheStop) {
  on_switch(kOut, 1000);
  settle(2000);
  waits.stop(5000);
  EXPECT_EQ(sum(), 4000u);
  EXPECT_TRUE(ended.empty());
}

TEST_F(Waits, ShortRecordsAreNotKnown) {
  const perf_event_header header{PERF_RECORD_SWITCH, kOut, sizeof header};
  bool known = true;
  EXPECT_FALSE(waits.on_switch(std::as_bytes(std::span(&header, 1)), known));
  EXPECT_FALSE(known);
}

}  // namespace
}  // namespace windlass::profiler
