// A mutex that needs no initialiser to have run, because initialisers of other files use objects in static storage.
// std::mutex is such a mutex with glibc, but not with winpthreads.
#pragma once

#include <atomic>

namespace windlass {

// BasicLockable, for std::lock_guard. Sleeps while it waits; not for signal handlers.
class StaticMutex {
 public:
  constexpr StaticMutex() = default;
  StaticMutex(const StaticMutex&) = delete;
  StaticMutex& operator=(const StaticMutex&) = delete;

  void lock() {
    while (held_.test_and_set(std::memory_order_acquire)) held_.wait(true, std::memory_order_relaxed);
  }
  void unlock() {
    held_.clear(std::memory_order_release);
    held_.notify_one();
  }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};

}  // namespace windlass
