// How often the clock's rate is halved because the agent is behind with its work. A ring that fills needs no agent for
// that: the kernel side halves the rate by itself. So the agent's own backlog is what counts here: what has come out of
// the rings and waits in its memory.
#pragma once

#include <cstdint>

namespace windlass::profiler {

// What waits for the agent.
struct Backlog {
  std::uint64_t age_ns = 0;  // of the oldest event
  double fill = 0;           // of the memory that events may take; 1: all
};

// Where the backlog is too old or too large, the rate is halved at once. It is halved again after kPatience, unless the
// backlog has become smaller meanwhile. Each kCalm without a backlog takes one halving back.
class RateControl {
 public:
  // The budget of a recording that begins (WorkBudget::kMostKeptNs) may make it so late for once.
  static constexpr std::uint64_t kTooOld = 5'000'000'000, kYoung = 1'000'000'000;  // ns
  static constexpr double kTooFull = 0.5, kEmpty = 0.125;
  static constexpr std::uint64_t kPatience = 1'000'000'000, kCalm = 5'000'000'000;  // ns

  // `most`: most_halvings().
  explicit RateControl(unsigned most) : most_(most) {}

  // How often the rate is to be halved from `now` on (ns of any clock that goes on). O(1).
  unsigned observe(std::uint64_t now, const Backlog& backlog) {
    if (is_behind(backlog)) {
      calm_since_ = 0;
      const bool waits = halvings_ != 0 && now < lowered_ + kPatience;
      if (!waits && halvings_ < most_ && !(halvings_ != 0 && is_shrinking(backlog))) ++halvings_;
      if (!waits) {
        lowered_ = now;
        before_ = backlog;
      }
    } else if (halvings_ != 0 && backlog.age_ns < kYoung && backlog.fill < kEmpty) {
      if (calm_since_ == 0) calm_since_ = now;
      if (now >= calm_since_ + kCalm) {
        --halvings_;
        calm_since_ = now;
      }
    } else {
      calm_since_ = 0;
    }
    return halvings_;
  }
  [[nodiscard]] unsigned halvings() const { return halvings_; }

 private:
  static bool is_behind(const Backlog& backlog) { return backlog.age_ns >= kTooOld || backlog.fill >= kTooFull; }
  [[nodiscard]] bool is_shrinking(const Backlog& backlog) const {
    return backlog.age_ns <= before_.age_ns && backlog.fill <= before_.fill &&
           (backlog.age_ns < before_.age_ns || backlog.fill < before_.fill);
  }

  unsigned most_;
  unsigned halvings_ = 0;
  std::uint64_t lowered_ = 0;     // or looked whether to
  std::uint64_t calm_since_ = 0;  // 0: it is not calm
  Backlog before_;                // then
};

}  // namespace windlass::profiler
