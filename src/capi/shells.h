// The memory of handles is never given back to the allocator, but kept for the next one, so that a closed handle can be
// recognised without touching freed memory.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <mutex>
#include <new>

#include "capi/structs.h"

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

template <typename Handle>
requires std::derived_from<Handle, Shell<Handle>>
[[nodiscard]] bool usable(const Handle* handle) { return handle != nullptr && handle->open(); }

// Fills a closed shell by fill(shell), opens it and gives it to `to`.
template <typename Handle, typename Fill>
windlass_status open_shell(Shells<Handle>& closed, Handle** to, windlass_error* error, Fill&& fill) {
  Handle* const shell = closed.take();
  if (shell == nullptr) return no_memory(error);
  fill(*shell);
  shell->change();
  *to = shell;
  return WINDLASS_OK;
}

// Closes an open shell, empties it by empty(shell) and keeps it for later.
template <typename Handle, typename Empty>
void close_shell(Shells<Handle>& closed, Handle& shell, Empty&& empty) {
  shell.change();
  empty(shell);
  closed.keep(shell);
}

}  // namespace windlass::capi
