// How often the clock's rate is halved because the agent is behind with its work. A ring that fills needs no agent for
// that: the kernel side halves the rate by itself. So the agent's own backlog is what counts here: what has come out of
// the rings and waits in its memory.
//
// The rate follows what the agent was seen to work off, as TCP's window follows what a path was seen to carry. A
// backlog alone says nothing of the present: it may be left from a burst, and takes its time at any rate.
#pragma once

#include <algorithm>
#include <cstdint>

namespace windlass::profiler {

// What waits for the agent.
struct Backlog {
  std::uint64_t age_ns = 0;  // of the oldest event
  double fill = 0;           // of the memory that events may take; 1: all
  // Events since the beginning: that came out of the rings, and those of them that were worked off.
  std::uint64_t came = 0, done = 0;
};

// Windows of kWindow are judged, each at one rate:
// - The backlog is too old or too large, and more came than was worked off. Then the rate is halved as often as it
//   takes for what comes to be kShare of what was worked off. That backlog counts once. Until it is worked off, only a
//   lack of memory lowers the rate again.
// - There was hardly a backlog, and it has not grown. Then one halving is taken back. More are, as long as less would
//   come than half of what was worked off in the last window without a pause.
// - A halving was taken back, and a backlog begins. Then the rate is halved again. The pauses between such trials grow
//   up to kMostPause.
class RateControl {
 public:
  // The budget of a recording that begins (WorkBudget::kMostKeptNs) may make it so late for once.
  static constexpr std::uint64_t kTooOld = 5'000'000'000, kYoung = 500'000'000;  // ns
  static constexpr double kTooFull = 0.5, kEmpty = 0.125;
  static constexpr double kShare = 0.75;
  static constexpr std::uint64_t kWindow = 500'000'000, kMostGap = 2'000'000'000;          // ns
  static constexpr std::uint64_t kLeastPause = 1'000'000'000, kMostPause = 8'000'000'000;  // ns
  // A trial has gone well after so long.
  static constexpr std::uint64_t kTrial = 4'000'000'000;  // ns

  // `most`: most_halvings().
  explicit RateControl(unsigned most) : most_(most) {}

  // How often the rate is to be halved from `now` on (ns of any clock that goes on). To be called several times in a
  // window. A gap of kMostGap between two calls is not judged. O(1).
  unsigned observe(std::uint64_t now, const Backlog& backlog) {
    const bool is_gap = now - last_ > kMostGap;  // what came meanwhile waits in the rings
    last_ = now;
    if (is_gap) begin(now, backlog);
    calm_ &= backlog.age_ns < kYoung && backlog.fill < kEmpty;
    busy_ &= backlog.age_ns >= kBusy;
    if (now < begun_ + kWindow) return halvings_;
    judge(now, backlog);
    begin(now, backlog);
    return halvings_;
  }
  [[nodiscard]] unsigned halvings() const { return halvings_; }

 private:
  static constexpr std::uint64_t kBusy = 100'000'000;   // ns: the agent has not waited for events
  static constexpr double kGrowth = 1.05, kNoise = 20;  // events a second

  void begin(std::uint64_t now, const Backlog& backlog) {
    begun_ = now;
    came_ = backlog.came;
    done_ = backlog.done;
    calm_ = busy_ = true;
  }

  void judge(std::uint64_t now, const Backlog& backlog) {
    const double seconds = static_cast<double>(now - begun_) * 1e-9;
    const double in = static_cast<double>(backlog.came - came_) / seconds;
    const double out = static_cast<double>(backlog.done - done_) / seconds;
    if (busy_) capacity_ = out;
    if (trial_ != 0 && now >= trial_ + kTrial) {
      trial_ = 0;
      pause_ = kLeastPause;
    }
    const bool is_behind = backlog.age_ns >= kTooOld || backlog.fill >= kTooFull;
    const bool is_known = now - std::min(backlog.age_ns, now) < lowered_ && backlog.fill < kTooFull;
    if (in > out && is_behind && !is_known)
      lower(now, in, out);
    else if (in > out && trial_ != 0 && backlog.age_ns >= kYoung)
      end_trial(now);
    else if (calm_ && halvings_ != 0 && now >= next_trial_ && in <= kGrowth * out + kNoise)
      raise(now, in);
  }

  void lower(std::uint64_t now, double in, double out) {
    do {
      if (halvings_ < most_) ++halvings_;
      in /= 2;
    } while (halvings_ < most_ && in > kShare * out && out > 0);
    lowered_ = now;
    trial_ = 0;
  }
  void end_trial(std::uint64_t now) {
    if (halvings_ < most_) ++halvings_;
    lowered_ = now;
    trial_ = 0;
    next_trial_ = now + pause_;
    pause_ = std::min(2 * pause_, kMostPause);
  }
  void raise(std::uint64_t now, double in) {
    do {
      --halvings_;
      in *= 2;
    } while (halvings_ != 0 && 2 * in <= capacity_ / 2);
    trial_ = now;
  }

  unsigned most_;
  unsigned halvings_ = 0;
  std::uint64_t lowered_ = 0;          // when
  std::uint64_t trial_ = 0;            // since when one halving less is tried; 0: it is not
  std::uint64_t next_trial_ = 0;       // not before
  std::uint64_t pause_ = kLeastPause;  // behind the next trial that fails
  double capacity_ = 0;                // a second, worked off without a pause; 0: not known
  std::uint64_t last_ = 0;             // observed
  std::uint64_t begun_ = 0;            // of the window, as all below
  std::uint64_t came_ = 0, done_ = 0;  // at its beginning
  bool calm_ = true, busy_ = true;     // so far
};

}  // namespace windlass::profiler
