// The memory of handles is never given back to the allocator, but kept for the next one, so that a closed handle can be
// recognised without touching freed memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>

namespace windlass::capi {

// What a handle begins with.
template <typename Handle>
struct Shell {
  std::atomic<std::uint64_t> generation{0};  // odd: open. Counts up at every opening and closing
  Handle* next_free = nullptr;

  [[nodiscard]] bool open() const { return (generation.load(std::memory_order_acquire) & 1) != 0; }
  void change() { generation.fetch_add(1, std::memory_order_release); }

 private:
  Shell() = default;
  friend Handle;
};

// Those that are closed. Thread-safe.
template <typename Handle>
class Shells {
 public:
  // A closed one, or null where there is no memory.
  [[nodiscard]] Handle* take() {
    {
      const std::lock_guard hold(lock_);
      if (Handle* shell = free_; shell != nullptr) {
        free_ = shell->next_free;
        return shell;
      }
    }
    return new (std::nothrow) Handle;
  }
  void keep(Handle& shell) {
    const std::lock_guard hold(lock_);
    shell.next_free = free_;
    free_ = &shell;
  }

 private:
  std::mutex lock_;
  Handle* free_ = nullptr;
};

}  // namespace windlass::capi
