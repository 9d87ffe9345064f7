// The functions that would be called without this library. The drop-in has the names of libgcc's and libunwind's
// functions, and a preloaded library is found first. So their contexts and cursors come in here, too. For example,
// libstdc++'s personality routine calls `_Unwind_GetIP` with a context that libgcc's `_Unwind_RaiseException` made.
// Calls with a foreign context or cursor are handed on.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

namespace windlass::dropin {

// A function of the same name further down the search order. Looked up when the library is loaded, and again at a call
// that comes earlier. dlsym() locks. But only exceptions can come so early, and these allocate anyway.
template <typename Function>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}

  void look_up() const {
    function_.store(reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_)), std::memory_order_relaxed);
  }
  // Null where nobody else has it.
  [[nodiscard]] Function* get() const {
    if (Function* known = function_.load(std::memory_order_relaxed); known != nullptr) return known;
    look_up();
    return function_.load(std::memory_order_relaxed);
  }
  // `otherwise` where nobody else has it.
  template <typename Result, typename... Arguments>
  Result call_or(Result otherwise, Arguments... arguments) const {
    Function* function = get();
    return function != nullptr ? function(arguments...) : otherwise;
  }

 private:
  const char* name_;
  mutable std::atomic<Function*> function_ = nullptr;
};

// The first words of our own contexts and cursors. libgcc's context begins with the addresses of the caller's saved rax
// and rdx (x0 and x1), libunwind's cursor with an address. The tags are no addresses on either architecture. Both words
// must match.
inline constexpr std::uint64_t kTag[2] = {0x9d1f'77a3'5c0e'4b61, 0x8be4'23d0'96f1'7d35};

[[nodiscard]] inline bool is_ours(const void* object) {
  const auto* words = static_cast<const std::uint64_t*>(object);
  return words[0] == kTag[0] && words[1] == kTag[1];
}

}  // namespace windlass::dropin
