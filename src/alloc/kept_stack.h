// The stack of a thread's last sample. Stacks of one thread mostly share all but a few frames. So a walk goes out to
// the first frame that the last stack had, and then compares the words that the steps from there on had loaded. The
// hash of a frame and those farther out is kept, too, and where the records of the last stacks are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "alloc/region.h"
#include "alloc/stacks.h"
#include "walk/own/simple_frame.h"

namespace windlass::alloc {

// Zero at first, as memory is that nobody has written.
class KeptStack {
 public:
  // Of a frame of the caller's to the outermost. False if only a walk with all registers can tell a frame, or there are
  // too many frames: then nothing is kept. Frames with pcs in [begin, end) count as if they were not there. Signal-safe
  // between enter() and leave(); allocates nothing.
  [[nodiscard]] bool walk(const walk::FastWalkState& from, std::uint64_t begin, std::uint64_t end);

  // Of the last walk. The hash is that of hash_of_stack(), without whose the stack is.
  [[nodiscard]] std::uint64_t hash_of_frames() const { return frames_[count_ - 1].hash; }
  [[nodiscard]] bool guessed() const { return frames_[count_ - 1].guessed; }
  // Writes the frames as a Record has them; returns how many. At most kMaxFrames.
  std::size_t frames(std::uint64_t* to) const;

  // Where the record of a stack may be; 0 if nothing is known.
  [[nodiscard]] std::uint32_t place(std::uint64_t hash) const { return places_[hash >> 20 & (kPlaces - 1)]; }
  void keep(std::uint64_t hash, std::uint32_t place) { places_[hash >> 20 & (kPlaces - 1)] = place; }

  // False if it is in use: by code that a signal handler interrupts, or by another thread. `alone`: no other thread
  // uses it.
  [[nodiscard]] bool enter(bool alone) {
    if (!alone) return !busy_.exchange(true, std::memory_order_acquire);
    if (busy_.load(std::memory_order_relaxed)) return false;
    busy_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
  }
  void leave() { busy_.store(false, std::memory_order_release); }

 private:
  struct Frame {
    walk::FastWalkState state;
    // What the step to the caller loads. One that is not just these two words has kBarrier, and is taken again.
    const std::uint64_t *return_slot, *fp_slot;
    std::uint64_t hash;  // of this frame and those farther out
    bool left_out;       // of the hash, and of the pcs
    bool guessed;        // this frame's caller, or one farther out
    bool is_own_guess;   // this frame's caller
  };
  enum class Answer : std::uint8_t { kStepped, kEnd, kCannot };

  static constexpr std::size_t kPlaces = std::size_t{1} << 14;

  static Answer step(Frame& frame, std::uint64_t high, walk::FastWalkState& caller);
  static Answer step_slowly(Frame& frame, walk::FastWalkState& caller);
  static bool still_leads_to(const walk::FastWalkState& next, Frame& frame, std::uint64_t high);
  static bool still_ends(Frame& frame, std::uint64_t high);
  [[nodiscard]] std::size_t changed_from(std::size_t at, std::uint64_t high);
  void put(std::size_t kept, std::size_t fresh);

  std::atomic<bool> busy_;
  std::size_t count_;
  Frame frames_[kMaxFrames];  // outermost first
  Frame fresh_[kMaxFrames];   // of a walk that goes on, innermost first
  std::uint32_t places_[kPlaces];
};

}  // namespace windlass::alloc
