// How much of a CPU the agent may use to unwind samples. A sample earns a little time. What is not used is kept, up to
// a bound. Where no time is left to follow code, a stack ends where code would have to be followed. Where none is left
// to walk stacks, a sample has its innermost frame alone. So samples are truncated, and none is lost behind a backlog.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>

#include "base/monotonic.h"
#include "walk/code_memo.h"

namespace windlass::profiler {

// The time of one kind of work of a thread.
class TimeAccount {
 public:
  // 0: there is no bound. At most so much is kept; that is there from the beginning.
  TimeAccount(double ns_a_sample, std::int64_t most_kept_ns)
      : ns_a_sample_(ns_a_sample), most_kept_(most_kept_ns), balance_(most_kept_ns) {}

  void earn(std::uint64_t samples) {
    const double earned = std::min(static_cast<double>(samples) * ns_a_sample_ + rest_, 1e12);
    const auto whole = static_cast<std::int64_t>(earned);
    rest_ = earned - static_cast<double>(whole);
    balance_ = std::min(balance_ + whole, most_kept_);
  }
  [[nodiscard]] bool is_left() const { return ns_a_sample_ == 0 || balance_ > 0; }
  // Work takes place in between.
  void begin() {
    if (ns_a_sample_ != 0) begun_ = thread_time_ns();
  }
  void end() {
    if (ns_a_sample_ != 0) balance_ -= static_cast<std::int64_t>(thread_time_ns() - begun_);
  }

 private:
  double ns_a_sample_;
  double rest_ = 0;  // below a nanosecond
  std::int64_t most_kept_, balance_;
  std::uint64_t begun_ = 0;
};

// One thread only, whose time it is about.
class WorkBudget final : public walk::CodeMemo::Limit {
 public:
  static constexpr double kDefaultShare = 0.05;
  // Managed runtimes' structures are read for each sample, as they are at the moment: that takes 100 to 300 us.
  static constexpr double kWalking = 10;
  // A large program without rows (deno) has 4,000 places to be followed in its first minute, which takes 2 to 3 s.
  static constexpr std::int64_t kMostKeptNs = 4'000'000'000;

  // share: of one CPU, for every 1,000 samples a second, that following code may take. Walking takes kWalking times as
  // much at most, code that is followed included. 0: there is no bound.
  explicit WorkBudget(double share = 0, std::int64_t most_kept_ns = kMostKeptNs)
      : following_(share * 1e6, most_kept_ns), walking_(share * 1e6 * kWalking, most_kept_ns) {}

  void earn(std::uint64_t samples) {
    following_.earn(samples);
    walking_.earn(samples);
  }
  // Nothing is left from then on, CLOCK_MONOTONIC, for who must be ready in time. Nor so soon after `stop` has become
  // readable; -1: there is no such descriptor.
  void end_at(std::uint64_t time, int stop = -1) {
    end_ = time;
    stop_ = stop;
  }
  static constexpr std::uint64_t kAfterStop = 100'000'000;  // ns

  [[nodiscard]] bool may_walk() { return !is_over() && walking_.is_left(); }
  // A sample is worked on in between.
  void begin_sample() { walking_.begin(); }
  void end_sample() { walking_.end(); }

  bool begin() override {
    if (is_over() || !following_.is_left()) return false;
    following_.begin();
    return true;
  }
  void end() override { following_.end(); }

 private:
  [[nodiscard]] bool is_over() {
    if (end_ == 0) return false;
    const std::uint64_t now = monotonic_ns();
    pollfd stop{stop_, POLLIN, 0};  // one below 0 is passed over
    if (::poll(&stop, 1, 0) > 0) {
      end_ = std::min(end_, now + kAfterStop);
      stop_ = -1;
    }
    return now >= end_;
  }

  TimeAccount following_, walking_;
  std::uint64_t end_ = 0;
  int stop_ = -1;
};

}  // namespace windlass::profiler
