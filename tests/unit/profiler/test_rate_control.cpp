#include "profiler/samples/rate_control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

namespace windlass::profiler {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kStep = kSecond / 10;
constexpr unsigned kMost = 7;

// Ticks, the ring with the kernel side's own halving (wl_halvings_now), and an agent that works off so many events a
// second. An event takes kEventBytes, as a stack of 70 frames does.
class Machine {
 public:
  static constexpr double kEventBytes = 700, kRingBytes = 64 << 20, kQueueBytes = 128 << 20;
  double demand = 0;    // ticks a second at the full rate, each with a new stack
  double capacity = 0;  // events a second; 0: the agent is stopped
  double lost = 0, lowered_seconds = 0;
  unsigned lowerings = 0, most_halvings = 0;
  RateControl control{kMost};

  void run(double seconds) {
    for (const double end = time_ + seconds; time_ < end; time_ += kTick) step();
  }
  [[nodiscard]] unsigned halvings() const { return control.halvings(); }
  [[nodiscard]] double backlog_seconds() const { return queue_.empty() ? 0 : time_ - queue_.front().time; }
  [[nodiscard]] double handled() const { return done_; }
  [[nodiscard]] double time() const { return time_; }

 private:
  static constexpr double kTick = 0.02;
  struct Came {
    double time, events;
  };

  [[nodiscard]] unsigned of_ring() const {
    const double sixteenths = ring_events_ * kEventBytes / kRingBytes * 16;
    if (sixteenths < 8) return 0;
    return sixteenths < 10 ? 1 : sixteenths < 12 ? 2 : sixteenths < 14 ? 3 : sixteenths < 15 ? 5 : kMost;
  }
  void step() {
    const double more = demand * kTick / std::exp2(std::max(of_ring(), control.halvings()));
    const double room = kRingBytes / kEventBytes - ring_events_;
    lost += std::max(0.0, more - room);
    ring_.push_back({time_, std::min(more, room)});
    ring_events_ += ring_.back().events;
    if (control.halvings() != 0) lowered_seconds += kTick;
    if (capacity > 0) work();
  }
  void work() {
    for (; !ring_.empty() && queued_ * kEventBytes < kQueueBytes; ring_.pop_front()) {
      queue_.push_back(ring_.front());
      queued_ += ring_.front().events;
      came_ += ring_.front().events;
      ring_events_ -= ring_.front().events;
    }
    double left = capacity * kTick;
    while (left > 0 && !queue_.empty()) {
      const double taken = std::min(left, queue_.front().events);
      left -= taken;
      done_ += taken;
      queued_ -= taken;
      queue_.front().events -= taken;
      if (queue_.front().events <= 0) queue_.pop_front();
    }
    const auto now = static_cast<std::uint64_t>((time_ + 100) * 1e9);
    if (now < observed_ + kStep) return;
    observed_ = now;
    const unsigned before = control.halvings();
    control.observe(now, {.age_ns = static_cast<std::uint64_t>(backlog_seconds() * 1e9),
                          .fill = queued_ * kEventBytes / kQueueBytes,
                          .came = static_cast<std::uint64_t>(came_),
                          .done = static_cast<std::uint64_t>(done_)});
    if (control.halvings() > before) ++lowerings;
    most_halvings = std::max(most_halvings, control.halvings());
  }

  double time_ = 0;
  std::deque<Came> ring_, queue_;
  double ring_events_ = 0, queued_ = 0, came_ = 0, done_ = 0;
  std::uint64_t observed_ = 0;
};

TEST(RateControlTest, AnAgentThatKeepsUpHasTheFullRate) {
  for (const double demand : {997.0, 9'998.0, 39'998.0}) {
    Machine machine;
    machine.demand = demand;
    machine.capacity = demand * 1.02;
    machine.run(120);
    EXPECT_EQ(machine.most_halvings, 0U) << demand;
    EXPECT_EQ(machine.lost, 0) << demand;
  }
}

// Whatever the machine's speed is: what is recorded is at least half of what the agent could work off.
TEST(RateControlTest, TheRateSettlesNearWhatTheAgentCanWorkOff) {
  for (const double demand : {9'998.0, 39'998.0})
    for (const double slower : {1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0}) {
      SCOPED_TRACE(testing::Message() << demand << " events a second, " << slower << " times too many");
      Machine machine;
      machine.demand = demand;
      machine.capacity = demand / slower;
      machine.run(60 + 10 * slower);  // the first backlog is of 5 s of ticks
      const double before = machine.handled(), begun = machine.time();
      machine.most_halvings = machine.halvings();
      machine.lowerings = 0;
      machine.run(120);
      const double share = (machine.handled() - before) / (machine.time() - begun) / machine.capacity;
      EXPECT_GE(share, 0.5);
      EXPECT_EQ(machine.lost, 0);
      EXPECT_LE(machine.most_halvings, static_cast<unsigned>(std::ceil(std::log2(slower / RateControl::kShare))));
      EXPECT_LT(machine.backlog_seconds(), 10);
      EXPECT_LE(machine.lowerings, 20U) << "a trial in 8 s at most, and hardly another lowering";
    }
}

// A backlog takes its time to be worked off. It says nothing of the rate by then.
TEST(RateControlTest, ABacklogLowersTheRateOnce) {
  Machine machine;
  machine.demand = 39'998;
  machine.capacity = 30'000;
  while (machine.halvings() == 0) machine.run(0.1);
  EXPECT_EQ(machine.halvings(), 1U);
  const double lowered = machine.time();
  machine.run(4);
  EXPECT_GE(machine.backlog_seconds(), 2) << "there is still a backlog";
  while (machine.backlog_seconds() > 1) {
    machine.run(0.1);
    ASSERT_EQ(machine.halvings(), 1U);
  }
  EXPECT_LT(machine.time() - lowered, 60);
}

TEST(RateControlTest, TheFullRateIsBackAFewSecondsAfterABurst) {
  for (const double burst : {80'000.0, 400'000.0}) {
    SCOPED_TRACE(burst);
    Machine machine;
    machine.capacity = 10'000;
    machine.demand = 1'000;
    machine.run(10);
    machine.demand = burst;
    machine.run(30);
    EXPECT_GE(machine.halvings(), 3U);
    machine.demand = 1'000;
    while (machine.backlog_seconds() > 0.1) machine.run(0.1);
    const double drained = machine.time();
    while (machine.halvings() != 0 && machine.time() < drained + 100) machine.run(0.1);
    EXPECT_LE(machine.time() - drained, 3);
    EXPECT_EQ(machine.lost, 0);
  }
}

// The ring's own halving does while the agent cannot. What has waited there is no reason for a lower rate then.
TEST(RateControlTest, AStoppedAgentHasTheFullRateSoonBehind) {
  Machine machine;
  machine.demand = 20'000;
  machine.capacity = 60'000;
  machine.run(10);
  machine.capacity = 0;
  machine.run(30);
  EXPECT_EQ(machine.lost, 0);
  machine.capacity = 60'000;
  machine.run(8);
  EXPECT_EQ(machine.halvings(), 0U);
  EXPECT_LE(machine.lowered_seconds, 5);
  EXPECT_LE(machine.most_halvings, 1U);
}

// An agent that gets a CPU now and then is as fast as it is on average.
TEST(RateControlTest, AnAgentThatIsStoppedAgainAndAgainLosesNothing) {
  Machine machine;
  machine.demand = 39'998;
  double before = 0;
  for (int i = 0; i < 100; ++i) {
    machine.capacity = 40'000;
    machine.run(0.3);
    machine.capacity = 0;
    machine.run(0.9);
    if (i == 40) before = machine.handled();
  }
  EXPECT_EQ(machine.lost, 0);
  EXPECT_GE((machine.handled() - before) / 59 / 1.2, 5'000) << "of 10,000 a second";
}

TEST(RateControlTest, TheRateIsLoweredNoMoreThanItMayBe) {
  Machine machine;
  machine.demand = 1'000'000;
  machine.capacity = 100;
  machine.run(120);
  EXPECT_EQ(machine.halvings(), kMost);
  RateControl none(0);
  for (std::uint64_t i = 0; i < 1'000; ++i)
    EXPECT_EQ(none.observe(100 * kSecond + i * kStep, {2 * RateControl::kTooOld, 0.9, i * 100, i}), 0U);
}

// A backlog that does not grow is one of before.
TEST(RateControlTest, ABacklogThatDoesNotGrowLowersNothing) {
  RateControl control(kMost);
  for (std::uint64_t i = 0; i < 1'000; ++i)
    ASSERT_EQ(control.observe(100 * kSecond + i * kStep, {2 * RateControl::kTooOld, 0.4, i * 100, i * 100}), 0U);
}

}  // namespace
}  // namespace windlass::profiler
