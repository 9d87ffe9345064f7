// The last walk of a thread, to be recognised in the next walk. A step depends on the pc, sp and frame pointer, on the
// rule of the pc, and on the two words that it loads. So behind a frame that both walks have, the frames stay the same
// as long as these words do. Comparing the words takes loads that do not wait for each other. Modules that can be
// unloaded may have other rules by now, so their frames are not replayed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace windlass::walk {

struct RecordedFrame {
  std::uint64_t key;  // pc and kind; 0: there is no caller
  std::uint64_t sp;
  std::uint64_t fp;
  // What the step to the caller loads; where both are one, the frame pointer stays. A step that is not just these two
  // loads points to kBarrier.
  const std::uint64_t* return_slot;
  const std::uint64_t* fp_slot;
};

inline constexpr std::uint64_t kBarrier = ~std::uint64_t{0};  // no return address: never equal
inline constexpr std::uint64_t kZero = 0;

// The frames of the last walk, outermost first. During a walk its own frames are kept too, in the same order, in
// another part of the array that is filled downwards. They lie beside the old frames. So old frames that stay need not
// be moved, or only few of them.
class alignas(4096) WalkRecord {
 public:
  static constexpr std::size_t kCapacity = 1024;

  // The calling thread's, locked; null if it is in use (a signal handler interrupted a walk, threads that share it).
  [[nodiscard]] static WalkRecord* acquire();
  // The calling thread's shall be as large as it can be, and its pages there.
  static void prepare();
  void start() { top_ = begin_ > limit_ - begin_ - size_ ? begin_ : limit_; }
  void release() { busy_.store(false, std::memory_order_release); }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const RecordedFrame& operator[](std::size_t i) const { return frames_[begin_ + i]; }

  // The new walk's next frame, [0, keep) of the old ones being still of use. False, with that frame made a barrier,
  // when there is no room.
  [[gnu::hot]] bool add(const RecordedFrame& frame, std::size_t keep) {
    if (room(keep) == 0 && !make_room(keep)) {
      if (fresh_ != 0) fresh()->return_slot = &kBarrier;
      return false;
    }
    frames_[top_ - ++fresh_] = frame;
    return true;
  }
  // The newest of the new walk's frames; room() more may be put before it, and said by added().
  [[nodiscard]] RecordedFrame* fresh() { return &frames_[top_ - fresh_]; }
  [[nodiscard]] std::size_t room(std::size_t keep) const {
    const std::size_t floor = top_ == limit_ ? begin_ + keep : 0;
    return top_ - fresh_ > floor ? top_ - fresh_ - floor : 0;
  }
  void added(std::size_t count) { fresh_ += count; }
  // [from, to) of the old frames become the new walk's next frames.
  void take(std::size_t from, std::size_t to) {
    const std::size_t count = to - from;
    if (count > room(from)) (void)make_room(to);
    std::memmove(&frames_[top_ - fresh_ - count], &frames_[begin_ + from], count * sizeof(RecordedFrame));
    fresh_ += count;
  }
  // The new walk is the fresh frames and then [0, keep) of the old.
  [[gnu::hot]] void finish(std::size_t keep) {
    const std::size_t place = top_ - fresh_;
    if (keep <= fresh_ && keep <= place) {
      if (keep != 0) std::memmove(&frames_[place - keep], &frames_[begin_], keep * sizeof(RecordedFrame));
      begin_ = place - keep;
    } else if (begin_ + keep + fresh_ <= limit_) {
      std::memmove(&frames_[begin_ + keep], &frames_[place], fresh_ * sizeof(RecordedFrame));
    } else {
      exchange(keep);
    }
    size_ = keep + fresh_;
    fresh_ = 0;
    may_grow_ = true;
  }

 private:
  std::atomic<bool> busy_;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
  std::size_t fresh_ = 0;
  std::size_t top_ = 0;  // the fresh frames end here: where the old begin, or at limit_
  // The array's end, as far as it is in use: short stacks shall touch one page.
  static constexpr std::size_t kFirstLimit = 96;
  std::size_t limit_ = 0;
  bool may_grow_ = false;  // not in the first walk
  RecordedFrame frames_[kCapacity] = {};

  // The fresh frames lie before the old ones: behind [0, keep) of these instead.
  void exchange(std::size_t keep) {
    std::rotate(&frames_[begin_ - fresh_], &frames_[begin_], &frames_[begin_ + keep]);
    begin_ -= fresh_;
  }
  [[gnu::hot]] bool make_room(std::size_t keep) {
    if (top_ != limit_) {
      exchange(keep);
      std::memmove(&frames_[limit_ - fresh_], &frames_[begin_ + keep], fresh_ * sizeof(RecordedFrame));
      top_ = limit_;
    }
    return room(keep) != 0 || grow();
  }
  [[gnu::hot]] bool grow() {
    if (limit_ == kCapacity || (limit_ != 0 && !may_grow_)) return false;
    const std::size_t larger = limit_ == 0 ? kFirstLimit : limit_ * 4 < kCapacity ? limit_ * 4 : kCapacity;
    if (fresh_ != 0) std::memmove(&frames_[larger - fresh_], &frames_[limit_ - fresh_], fresh_ * sizeof(RecordedFrame));
    limit_ = top_ = larger;
    return true;
  }
};

}  // namespace windlass::walk
