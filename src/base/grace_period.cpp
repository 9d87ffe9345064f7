#include "base/grace_period.h"

#include <mutex>
#include <utility>

namespace windlass {

// Why this is right. All operations on phase_ and all increments by readers are sequentially consistent. A reader that
// has checked its phase p was counted before the store that began p + 1. So a thread that looks at the count after that
// store sees the reader, until the reader leaves. A reader that finds p + 1 sees everything done before that store: it
// does not see memory that was taken away.
void GracePeriod::Reader::enter(GracePeriod& period) {
  if (counter_ != nullptr) return;
  // Threads have stacks of their own.
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) >> 14;
  Stripe& stripe = period.stripes_[place * 0x9e37'79b9'7f4a'7c15 >> 60];
  static_assert(kStripes == 1u << (64 - 60));
  for (;;) {
    const std::uint64_t phase = period.phase_.load();
    std::atomic<std::uint32_t>& counter = stripe.readers[phase & 1];
    counter.fetch_add(1);
    if (period.phase_.load() == phase) {
      counter_ = &counter;
      return;
    }
    counter.fetch_sub(1, std::memory_order_release);
  }
}

bool GracePeriod::has_readers(std::uint64_t phase) const {
  for (const Stripe& stripe : stripes_)
    if (stripe.readers[phase & 1].load() != 0) return true;
  return false;
}

void GracePeriod::retire(Retired retired) {
  std::vector<Retired> free;
  {
    const std::lock_guard hold(lock_);
    fresh_.push_back(retired);
    // Without readers, two phases pass at once. The first frees the objects that waited. The second frees those retired
    // now.
    for (int i = 0; i < 2 && !has_readers(phase_.load() - 1); ++i) {
      free.insert(free.end(), waiting_.begin(), waiting_.end());
      waiting_ = std::exchange(fresh_, {});
      phase_.store(phase_.load() + 1);
    }
  }
  for (const Retired& gone : free) gone.free(gone.object);
}

std::size_t GracePeriod::waiting() {
  const std::lock_guard hold(lock_);
  return fresh_.size() + waiting_.size();
}

}  // namespace windlass
