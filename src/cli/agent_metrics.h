// What an agent counts of itself: every loss, and every bound with how much of it is used.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace windlass::cli {

struct AgentCounters {
  // Since the agent's start.
  std::uint64_t samples = 0, truncated = 0, left_out = 0;
  double lowered_seconds = 0;
  std::uint64_t lost_ring = 0, lost_waits = 0, lost_stacks = 0, lost_process_events = 0, lost_labels = 0;
  std::uint64_t recordings = 0;  // begun
  struct Bound {
    std::string name;
    std::uint64_t used = 0, most = 0;
  };
  std::vector<Bound> bounds;
};

struct StoreCounters {
  // Since the agent's start.
  std::uint64_t samples = 0, intervals = 0, dropped = 0;
  std::uint64_t earlier_samples = 0, earlier_intervals = 0;  // of the stored ones, of an agent before this one
  std::uint64_t refusals = 0;                                // of an interval that was tried
  std::uint64_t torn_intervals = 0;                          // in the spool, damaged
  // Now.
  std::uint64_t waiting_parts = 0, waiting_intervals = 0;
  std::uint64_t most_waiting_parts = 0, most_waiting_intervals = 0;  // 0 intervals: those on disk have spool bytes
  std::uint64_t spool_bytes = 0, most_spool_bytes = 0;               // 0: without a spool
  std::uint64_t oldest_ns = 0, newest_ns = 0;                        // Unix times of what the store has; 0: nothing
};

// Of the batches that go to an OTLP server.
struct OtlpNumbers {
  // Since the agent's start.
  std::uint64_t batches = 0, samples = 0;                  // that the server has taken
  std::uint64_t earlier_batches = 0, earlier_samples = 0;  // of these, of an agent before this one
  std::uint64_t dropped_batches = 0, dropped_samples = 0, torn_batches = 0;
  std::uint64_t retries = 0, unsure = 0, rejected_profiles = 0, warnings = 0;
  // Now.
  std::uint64_t failures = 0;  // in a row
  std::uint64_t waiting_batches = 0, spool_bytes = 0, most_spool_bytes = 0;
};

// Written by the threads of the agent, read by that which serves.
class AgentMetrics {
 public:
  void set_store(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    path_ = path;
  }
  void set(const AgentCounters& counters) {
    const std::scoped_lock lock(mutex_);
    counters_ = counters;
  }
  void set(const StoreCounters& counters) {
    const std::scoped_lock lock(mutex_);
    store_ = counters;
  }
  void set(const OtlpNumbers& numbers) {
    const std::scoped_lock lock(mutex_);
    otlp_ = numbers;
  }
  // Prometheus's text format, version 0.0.4. Also the memory and CPU time of this process, and the size of the store.
  [[nodiscard]] std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string path_;  // of the store; under the mutex, as those below
  AgentCounters counters_;
  StoreCounters store_;
  std::optional<OtlpNumbers> otlp_;  // nothing: no OTLP server was named
};

}  // namespace windlass::cli
