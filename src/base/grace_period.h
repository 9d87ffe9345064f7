// When may memory be freed while readers without locks may still use it? Readers say when they come and go. Writers
// retire an object that no new reader can find. The object is freed once the readers of that moment have left.
//
// Readers are counted by the phase in which they came. The last two phases are counted apart, as in the Linux kernel's
// sleepable RCU. A writer begins a new phase once the readers of the phase before the present one are gone. Then only
// readers of the present phase can still have seen objects that were retired before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/static_mutex.h"

namespace windlass {

// Waiting is at most what was handed in since the oldest reader under way came: nothing, where none is.
// A child that is forked while other threads read keeps their counts, and frees nothing from then on.
class GracePeriod {
 public:
  constexpr GracePeriod() = default;
  GracePeriod(const GracePeriod&) = delete;
  GracePeriod& operator=(const GracePeriod&) = delete;

  // A reader. Signal-safe and lock-free: it begins anew only where a writer has begun a phase meanwhile. Any number at
  // a time and on a thread, in handlers that interrupt readers and writers, too; may leave on another thread.
  class Reader {
   public:
    Reader() = default;
    explicit Reader(GracePeriod& period) { enter(period); }
    ~Reader() { leave(); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    // Before the first look at what writers change. Nothing where it is in already.
    void enter(GracePeriod& period);
    // Of what it has found nothing may be used behind this.
    void leave() {
      if (counter_ != nullptr) counter_->fetch_sub(1, std::memory_order_release);
      counter_ = nullptr;
    }

   private:
    std::atomic<std::uint32_t>* counter_ = nullptr;
  };

  // Deletes an object that no reader can find any more, here if there is no reader, else in a later call. Takes a lock
  // and memory: never in a signal handler.
  template <typename T>
  void retire(const T* object) {
    retire({object, [](const void* retired) { delete static_cast<const T*>(retired); }});
  }
  // How many wait.
  [[nodiscard]] std::size_t waiting();

 private:
  struct Retired {
    const void* object;
    void (*free)(const void*);
  };
  // A cache line for some of the threads.
  struct alignas(64) Stripe {
    std::atomic<std::uint32_t> readers[2] = {};  // by the phase's lowest bit
  };
  static constexpr std::size_t kStripes = 16;

  void retire(Retired retired);
  [[nodiscard]] bool has_readers(std::uint64_t phase) const;

  Stripe stripes_[kStripes];
  std::atomic<std::uint64_t> phase_ = 1;
  StaticMutex lock_;
  std::vector<Retired> fresh_;    // handed in in the present phase
  std::vector<Retired> waiting_;  // for the readers of the phase before it
};

}  // namespace windlass
