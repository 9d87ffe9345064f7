// Batches on their way to a store that may be busy, full or away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "profiler/store/store.h"

namespace windlass::store {

struct OwnedBatch {
  BatchId id;
  std::uint64_t begin_ns = 0, end_ns = 0;
  profile::Profile profile;
  std::uint64_t samples = 0;            // that were taken: profile::count_samples()
  std::vector<std::uint64_t> scales{};  // with which these were counted
};

// No later try to append can end in another way.
[[nodiscard]] inline bool is_final(const Error& error) {
  return error.code == ErrorCode::kOutOfRange || error.code == ErrorCode::kLimit;
}

// Holds a bounded number of batches. If the store takes none for long, the oldest is dropped: its samples are lost
// samples of the batch behind it.
class BatchQueue {
 public:
  // The store must outlive the queue. `most`: batches that wait; at least 1.
  BatchQueue(ProfileStore& store, std::size_t most) : store_(store), most_(most) {}

  void add(OwnedBatch&& batch);
  // Appends in order, as many as the store takes. The error of the first that it does not take; that one waits.
  [[nodiscard]] Expected<void> flush();

  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::uint64_t waiting_samples() const;
  [[nodiscard]] std::uint64_t dropped_samples() const { return dropped_samples_; }
  [[nodiscard]] std::uint64_t kept_samples() const { return kept_samples_; }
  [[nodiscard]] std::uint64_t kept_batches() const { return kept_batches_; }

 private:
  void drop_oldest();

  ProfileStore& store_;
  std::size_t most_;
  std::deque<OwnedBatch> waiting_;
  std::uint64_t lost_ = 0;  // of dropped batches; not yet told by a later one
  std::uint64_t dropped_samples_ = 0, kept_samples_ = 0, kept_batches_ = 0;
};

}  // namespace windlass::store
