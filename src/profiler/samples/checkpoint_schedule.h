// When a recording under way saves what it has.
#pragma once

#include <algorithm>

namespace windlass::profiler {

// A checkpoint may cost a hundredth of the time since the last; the first comes early, so that short recordings that
// are killed leave something, and the time between them doubles up to a minute. Times are seconds since the start.
class CheckpointSchedule {
 public:
  static constexpr double kFirst = 2, kLongest = 60, kShare = 0.01;

  [[nodiscard]] bool due(double now) const { return now >= next_; }
  // One was made between these times.
  void made(double begin, double end) {
    interval_ = std::max(std::min(interval_ * 2, kLongest), (end - begin) / kShare);
    next_ = end + interval_;
  }

 private:
  double next_ = kFirst, interval_ = kFirst;
};

}  // namespace windlass::profiler
