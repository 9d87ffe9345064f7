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
constexpr int kLastTries = 3;                    // to write the last intervals
constexpr std::uint64_t kShorterNs = 1'000'000;  // an interval may be so much shorter than it should be

}  // namespace

void AgentWriter::add(profile::Profile&& part, std::uint64_t end_unix_ns) {
  const std::scoped_lock lock(mutex_);
  if (parts_.size() >= kMostParts) {
    const std::uint64_t samples = profile::count_samples(parts_.front().profile, options_.scales);
    const profile::Profile dropped = std::move(parts_.front().profile);
    parts_.pop_front();
    dropped_ += samples;
    parts_.front().profile.lost += dropped.lost + samples;
    parts_.front().profile.duration_ns += dropped.duration_ns;
  }
  parts_.push_back({std::move(part), end_unix_ns});
  changed_.notify_one();
}

void AgentWriter::end() {
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  changed_.notify_one();
}

// Nothing: the recording has ended, and all is taken.
std::optional<AgentWriter::Part> AgentWriter::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_ || !parts_.empty(); });
  if (parts_.empty()) return std::nullopt;
  Part part = std::move(parts_.front());
  parts_.pop_front();
  return part;
}

void AgentWriter::gather(Part&& part) {
  name_(part.profile);
  const std::uint64_t begin = part.end_unix_ns - std::min(part.end_unix_ns, part.profile.duration_ns);
  const std::uint64_t apart = begin > end_ns_ ? begin - end_ns_ : end_ns_ - begin;
  if (interval_ && apart >= kClockStepNs) close_interval();  // no interval has two clocks
  if (!interval_) {
    begin_ns_ = apart < kClockStepNs ? end_ns_ : begin;
    interval_ = std::move(part.profile);
  } else {
    exporter::merge_into(*interval_, part.profile);
  }
  end_ns_ = part.end_unix_ns;
  if (interval_->duration_ns + kShorterNs >= options_.interval_ns) close_interval();
}

void AgentWriter::close_interval() {
  interval_->start_unix_ns = begin_ns_;
  const std::uint64_t samples = profile::count_samples(*interval_, options_.scales);
  store::OwnedBatch batch{{options_.host, options_.start_unix_ns, sequence_++},
                          begin_ns_,
                          end_ns_,
                          std::move(*interval_),
                          samples,
                          options_.scales};
  interval_.reset();
  if (options_.closed) options_.closed(batch);
  if (queue_) queue_->add(std::move(batch));
  write();
}

// A store that takes nothing is said once, and again when it has taken something in between.
void AgentWriter::write() {
  const auto written = queue_ ? queue_->flush() : Expected<void>();
  if (!written) ++refusals_;
  if (!written && !std::exchange(told_, true)) say_error("agent", written.error());
  if (const std::uint64_t dropped = dropped_samples(); std::exchange(told_dropped_, dropped) != dropped)
    say("windlass: agent: samples were dropped: {} so far\n", dropped);
  if (written) told_ = false;
  if (options_.counted) options_.counted(counters());
}

std::uint64_t AgentWriter::dropped_samples() {
  const std::scoped_lock lock(mutex_);
  return dropped_ + (queue_ ? queue_->dropped_samples() : 0);
}

StoreCounters AgentWriter::counters() {
  StoreCounters now{.samples = queue_ ? queue_->kept_samples() : 0,
                    .intervals = queue_ ? queue_->kept_batches() : 0,
                    .dropped = dropped_samples(),
                    .refusals = refusals_,
                    .waiting_intervals = waiting(),
                    .most_waiting_parts = kMostParts,
                    .most_waiting_intervals = kMostBatches};
  if (store_ != nullptr) {
    if (const auto extent = store_->extent(); extent && *extent) {
      now.oldest_ns = (*extent)->begin_ns;
      now.newest_ns = (*extent)->end_ns;
    }
  }
  const std::scoped_lock lock(mutex_);
  now.waiting_parts = parts_.size();
  return now;
}

void AgentWriter::write_rest() {
  for (int tries = 0; tries < kLastTries && waiting() != 0; ++tries) {
    if (tries != 0) std::this_thread::sleep_for(1s);
    write();
  }
}

void AgentWriter::run() {
  while (auto part = take()) gather(std::move(*part));
  if (interval_) close_interval();
  write_rest();
}

}  // namespace windlass::cli
