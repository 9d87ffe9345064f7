// The last walk of a thread, to be recognised in the next. A step depends on the pc, sp and frame pointer, on the rule
// of the pc, and on the two words it loads. So from a frame on that both walks have, the frames of the old one are
// those of the new one as long as the words are still the same: loads that do not wait for each other.
// Modules that can be unloaded may have other rules by now: their frames are not replayed.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

namespace windlass::walk {

struct RecordedFrame {
  std::uint64_t key;  // pc and kind; 0: there is no caller
  std::uint64_t sp;
  std::uint64_t fp;
  // What the step to the caller loads; fp_slot null: the frame pointer stays. A step that is not just these two loads
  // points to kBarrier.
  const std::uint64_t* return_slot;
  const std::uint64_t* fp_slot;
};

inline constexpr std::uint64_t kBarrier = ~std::uint64_t{0};  // no return address: never equal
inline constexpr std::uint64_t kZero = 0;

// Outermost frame first. While a walk goes on its own frames are kept, in the same order, at the array's end.
class alignas(4096) WalkRecord {
 public:
  static constexpr std::size_t kCapacity = 1024;

  // The calling thread's, locked; null if it is in use (a signal handler interrupted a walk, threads that share it).
  [[nodiscard]] static WalkRecord* acquire();
  void release() { busy_.store(false, std::memory_order_release); }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const RecordedFrame& operator[](std::size_t i) const { return frames_[i]; }

  // The new walk's next frame, [0, keep) of the old ones being still of use. False, with that frame made a barrier,
  // when there is no room.
  bool add(const RecordedFrame& frame, std::size_t keep) {
    if (fresh_ + keep >= limit_ && !grow()) {
      if (fresh_ != 0) frames_[limit_ - fresh_].return_slot = &kBarrier;
      return false;
    }
    frames_[limit_ - ++fresh_] = frame;
    return true;
  }
  // The newest of the new walk's frames; room() more may be put before it, and said by added().
  [[nodiscard]] RecordedFrame* fresh() { return &frames_[limit_ - fresh_]; }
  [[nodiscard]] std::size_t room(std::size_t keep) const { return limit_ - fresh_ > keep ? limit_ - fresh_ - keep : 0; }
  void added(std::size_t count) { fresh_ += count; }
  // [from, to) of the old frames become the new walk's next frames.
  void take(std::size_t from, std::size_t to) {
    const std::size_t count = to - from;
    std::memmove(&frames_[limit_ - fresh_ - count], &frames_[from], count * sizeof(RecordedFrame));
    fresh_ += count;
  }
  // The new walk is the fresh frames and then [0, keep) of the old.
  void finish(std::size_t keep) {
    std::memmove(&frames_[keep], &frames_[limit_ - fresh_], fresh_ * sizeof(RecordedFrame));
    size_ = keep + fresh_;
    fresh_ = 0;
    may_grow_ = true;
  }

 private:
  std::atomic<bool> busy_;
  std::size_t size_ = 0;
  std::size_t fresh_ = 0;
  // The array's end, as far as it is in use: short stacks shall touch one page.
  static constexpr std::size_t kFirstLimit = 96;
  std::size_t limit_ = 0;
  bool may_grow_ = false;  // not in the first walk
  RecordedFrame frames_[kCapacity];

  bool grow() {
    if (limit_ == kCapacity || (limit_ != 0 && !may_grow_)) return false;
    const std::size_t larger = limit_ == 0 ? kFirstLimit : limit_ * 4 < kCapacity ? limit_ * 4 : kCapacity;
    std::memmove(&frames_[larger - fresh_], &frames_[limit_ - fresh_], fresh_ * sizeof(RecordedFrame));
    limit_ = larger;
    return true;
  }
};

}  // namespace windlass::walk
