#include "profiler/store/batch_queue.h"

#include <utility>

namespace windlass::store {

void BatchQueue::add(OwnedBatch&& batch) {
  if (waiting_.size() >= most_) drop_oldest();
  batch.profile.lost += std::exchange(lost_, 0);
  waiting_.push_back(std::move(batch));
}

void BatchQueue::drop_oldest() {
  const std::uint64_t samples = waiting_.front().samples;
  dropped_samples_ += samples;
  const std::uint64_t lost = samples + waiting_.front().profile.lost;
  waiting_.pop_front();
  (waiting_.empty() ? lost_ : waiting_.front().profile.lost) += lost;
}

std::uint64_t BatchQueue::waiting_samples() const {
  std::uint64_t sum = 0;
  for (const OwnedBatch& batch : waiting_) sum += batch.samples;
  return sum;
}

Expected<void> BatchQueue::flush() {
  while (!waiting_.empty()) {
    const OwnedBatch& batch = waiting_.front();
    const auto appended = store_.append({batch.id, batch.begin_ns, batch.end_ns, batch.profile});
    if (!appended) {
      if (is_final(appended.error())) drop_oldest();
      return Failure(appended.error());
    }
    kept_samples_ += batch.samples;
    ++kept_batches_;
    waiting_.pop_front();
  }
  return {};
}

}  // namespace windlass::store
