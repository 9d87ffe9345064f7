// The next function of a name behind this library's: libc's, or that of another allocator.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace windlass::alloc {

// Is the calling thread looking for a function? dlsym() may allocate.
[[nodiscard]] bool searching_next();
[[nodiscard]] void* find_next(const char* name);

// Looked for when it is first called.
template <typename Function>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}
  // Null while the calling thread looks for one.
  Function* get() {
    Function* const known = function_.load(std::memory_order_relaxed);
    return known != nullptr ? known : find();
  }

 private:
  [[gnu::noinline, gnu::cold]] Function* find() {
    if (searching_next()) return nullptr;
    auto* const found = reinterpret_cast<Function*>(find_next(name_));
    if (found == nullptr) std::abort();  // the program could not have called it
    function_.store(found, std::memory_order_relaxed);
    return found;
  }

  const char* name_;
  std::atomic<Function*> function_ = nullptr;
};

}  // namespace windlass::alloc
