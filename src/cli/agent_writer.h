// Parts of a recording on their way to a store: named, gathered to intervals, appended. On a thread of its own, so
// that neither names nor the store hold up the recording.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/agent_metrics.h"
#include "profiler/store/batch_queue.h"

namespace windlass::cli {

struct AgentWriterOptions {
  std::string host;
  std::uint64_t start_unix_ns = 0;  // of the agent
  std::uint64_t interval_ns = 10'000'000'000;
  std::vector<std::uint64_t> scales{};  // of profile::count_samples()
  // Called on the thread of run() whenever the store has been tried; empty: not.
  std::function<void(const StoreCounters&)> counted{};
  // Called on the thread of run() with each interval, before the store has the interval; empty: not.
  std::function<void(const store::OwnedBatch&)> closed{};
};

class AgentWriter {
 public:
  using Name = std::function<void(profile::Profile&)>;
  static constexpr std::size_t kMostParts = 60;    // that wait for names
  static constexpr std::size_t kMostBatches = 60;  // that wait for the store

  // `store` must outlive the writer; null: intervals go to AgentWriterOptions::closed alone. `name` is called on the
  // thread of run().
  AgentWriter(store::ProfileStore* store, Name name, const AgentWriterOptions& options)
      : name_(std::move(name)), options_(options), store_(store) {
    if (store != nullptr) queue_.emplace(*store, kMostBatches);
  }

  // ---- by the thread that records

  // What came since the last call; `end_unix_ns` is now.
  void add(profile::Profile&& part, std::uint64_t end_unix_ns);
  // Nothing more comes.
  void end();

  // ---- by the thread that writes

  // Returns when all is written after end(), or given up.
  void run();
  // On the thread of run(), or after it; without a store by any thread.
  [[nodiscard]] StoreCounters counters();
  // After run(): intervals that the store has not taken, and their samples.
  [[nodiscard]] std::size_t waiting() const { return queue_ ? queue_->waiting() : 0; }
  [[nodiscard]] std::uint64_t waiting_samples() const { return queue_ ? queue_->waiting_samples() : 0; }
  [[nodiscard]] std::uint64_t dropped_samples();

 private:
  struct Part {
    profile::Profile profile;
    std::uint64_t end_unix_ns = 0;
  };
  [[nodiscard]] std::optional<Part> take();
  void gather(Part&& part);
  void close_interval();
  void write();
  void write_rest();

  Name name_;
  AgentWriterOptions options_;
  store::ProfileStore* store_;
  std::optional<store::BatchQueue> queue_;  // nothing: no store

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Part> parts_;  // under the mutex, as the two below
  bool ended_ = false;
  std::uint64_t dropped_ = 0;  // samples of parts that found no room

  std::optional<profile::Profile> interval_;
  std::uint64_t begin_ns_ = 0, end_ns_ = 0;  // of the interval
  std::uint64_t sequence_ = 0;
  bool told_ = false;  // that the store takes nothing
  std::uint64_t told_dropped_ = 0;
  std::uint64_t refusals_ = 0;
};

}  // namespace windlass::cli
