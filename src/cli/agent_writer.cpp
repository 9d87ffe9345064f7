#include "cli/agent_writer.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "cli/errors.h"
#include "cli/say.h"
#include "profiler/export/merge.h"

namespace windlass::cli {
namespace {

using namespace std::chrono_literals;

// A clock that was set moves the intervals; smaller differences are the time between two readings.
constexpr std::uint64_t kClockStepNs = 100'000'000;
constexpr int kLastTries = 3;  // to write the last intervals

}  // namespace

void AgentWriter::add(profile::Profile&& second, std::uint64_t end_unix_ns) {
  const std::scoped_lock lock(mutex_);
  if (seconds_.size() >= kMostSeconds) {
    const std::uint64_t samples = profile::count_samples(seconds_.front().profile);
    const profile::Profile dropped = std::move(seconds_.front().profile);
    seconds_.pop_front();
    dropped_ += samples;
    seconds_.front().profile.lost += dropped.lost + samples;
    seconds_.front().profile.duration_ns += dropped.duration_ns;
  }
  seconds_.push_back({std::move(second), end_unix_ns});
  changed_.notify_one();
}

void AgentWriter::end() {
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  changed_.notify_one();
}

// Nothing: the recording has ended, and all is taken.
std::optional<AgentWriter::Second> AgentWriter::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_ || !seconds_.empty(); });
  if (seconds_.empty()) return std::nullopt;
  Second second = std::move(seconds_.front());
  seconds_.pop_front();
  return second;
}

void AgentWriter::gather(Second&& second) {
  name_(second.profile);
  const std::uint64_t begin = second.end_unix_ns - std::min(second.end_unix_ns, second.profile.duration_ns);
  if (!interval_) {
    const std::uint64_t apart = begin > end_ns_ ? begin - end_ns_ : end_ns_ - begin;
    begin_ns_ = apart < kClockStepNs ? end_ns_ : begin;
    interval_ = std::move(second.profile);
  } else {
    exporter::merge_into(*interval_, second.profile);
  }
  end_ns_ = second.end_unix_ns;
  if (interval_->duration_ns >= options_.interval_ns) close_interval();
}

void AgentWriter::close_interval() {
  interval_->start_unix_ns = begin_ns_;
  queue_.add({{options_.host, options_.start_unix_ns, sequence_++}, begin_ns_, end_ns_, std::move(*interval_)});
  interval_.reset();
  write();
}

// A store that takes nothing is said once, and again when it has taken something in between.
void AgentWriter::write() {
  const std::uint64_t dropped = queue_.dropped_samples();
  const auto written = queue_.flush();
  if (!written && !std::exchange(told_, true)) say_error("agent", written.error());
  if (queue_.dropped_samples() != dropped) say("windlass: agent: samples were dropped: {} so far\n", dropped_samples());
  if (written) told_ = false;
}

void AgentWriter::write_rest() {
  for (int tries = 0; tries < kLastTries && queue_.waiting() != 0; ++tries) {
    if (tries != 0) std::this_thread::sleep_for(1s);
    write();
  }
}

void AgentWriter::run() {
  while (auto second = take()) gather(std::move(*second));
  if (interval_) close_interval();
  write_rest();
}

}  // namespace windlass::cli
