// The next function of a name behind this library's: libc's, or that of another allocator.
#pragma once

#include <atomic>
#include <cstddef>

namespace windlass::alloc {

// Is the calling thread looking for a function? dlsym() may allocate.
[[nodiscard]] bool searching_next();
[[nodiscard]] void* find_next(const char* name);

// Looked for when it is first called.
template <typename Function>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}
  // Null while the calling thread looks for one, and if there is none. A library may bring operators of C++ of its own,
  // and calls those of this library: then none stands behind them.
  Function* get() {
    Function* const function = known();
    return function != nullptr ? function : find();
  }
  // Null before, too.
  [[nodiscard]] Function* known() const { return function_.load(std::memory_order_relaxed); }

 private:
  [[gnu::noinline, gnu::cold]] Function* find() {
    if (searching_next() || missing_.load(std::memory_order_relaxed)) return nullptr;
    auto* const found = reinterpret_cast<Function*>(find_next(name_));
    if (found == nullptr) missing_.store(true, std::memory_order_relaxed);
    function_.store(found, std::memory_order_relaxed);
    return found;
  }

  const char* name_;
  std::atomic<Function*> function_ = nullptr;
  std::atomic<bool> missing_ = false;
};

}  // namespace windlass::alloc
