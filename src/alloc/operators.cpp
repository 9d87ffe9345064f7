// operator new and operator delete. Those of libstdc++ call malloc() and free(), which count. Those of other allocators
// do not, so they are counted here. The functions have their names in the ABI: the compiler would take operators for
// its own. Arguments behind the first (alignment, size, nothrow) are in registers, and handed on as they came.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "alloc/interpose.h"

namespace windlass::alloc {
namespace {

using New = void*(std::size_t, std::uintptr_t, std::uintptr_t);
using Delete = void(void*, std::uintptr_t, std::uintptr_t);

enum class Behind : std::uint8_t { kUnknown, kMalloc, kOther };
constinit std::atomic<Behind> behind = Behind::kUnknown;

// Do programs come here by the operators that libstdc++'s other forms call?
bool are_own() {
  Dl_info own{}, found{};
  if (dladdr(reinterpret_cast<const void*>(&are_own), &own) == 0) return true;
  for (const char* name : {"_Znwm", "_Znam", "_ZdlPv", "_ZdaPv"}) {
    const void* const first = dlsym(RTLD_DEFAULT, name);
    if (first != nullptr && dladdr(first, &found) != 0 && found.dli_fbase != own.dli_fbase) return false;
  }
  return true;
}

// Which operators stand behind these? Those of libstdc++ and libc++ do no more than call malloc() and free(), as long
// as there is memory: that is done here at once.
[[gnu::noinline, gnu::cold]] Behind find_behind(const void* next) {
  if (next == nullptr && searching_next()) return Behind::kMalloc;
  if (!are_own()) {  // the program has some of them: libstdc++'s others call those
    behind.store(Behind::kOther, std::memory_order_relaxed);
    return Behind::kOther;
  }
  Dl_info info{};
  const bool known = next != nullptr && dladdr(next, &info) != 0 && info.dli_fname != nullptr;
  const bool plain = known && (std::strstr(info.dli_fname, "libstdc++.so") != nullptr ||
                               std::strstr(info.dli_fname, "libc++abi.so") != nullptr);
  const Behind found = plain || next == nullptr ? Behind::kMalloc : Behind::kOther;
  behind.store(found, std::memory_order_relaxed);
  return found;
}

// With none behind them, these are the operators: of a library that has its own ones linked in and calls these.
[[gnu::cold]] void* make_block(std::size_t size, std::size_t alignment, bool may_fail) {
  if (size == 0) size = 1;
  void* const block = alignment == 0 ? counted_malloc(size) : aligned_alloc(alignment, size);
  if (block == nullptr && !may_fail) std::abort();  // nothing here can throw
  return block;
}

template <typename Function>
bool is_malloc(Next<Function>& next) {
  Behind known = behind.load(std::memory_order_relaxed);
  if (known == Behind::kUnknown) known = find_behind(reinterpret_cast<const void*>(next.get()));
  return known == Behind::kMalloc;
}

enum class Form : std::uint8_t { kPlain, kNothrow, kAligned, kAlignedNothrow };

[[gnu::noinline]] void* call_new(Next<New>& next, Form form, std::size_t size, std::uintptr_t second,
                                 std::uintptr_t third) {
  auto* const function = next.get();
  if (function == nullptr) [[unlikely]] {
    const bool is_aligned = form == Form::kAligned || form == Form::kAlignedNothrow;
    return make_block(size, is_aligned ? second : 0, form == Form::kNothrow || form == Form::kAlignedNothrow);
  }
  const Count before = count_now();
  void* const block = function(size, second, third);
  if (count_now() == before) allocated(block, size);
  return block;
}
// Without an alignment.
[[gnu::noinline]] void* find_plain_new(Next<New>& next, Form form, std::size_t size, std::uintptr_t second) {
  if (is_malloc(next))
    if (void* const block = counted_malloc(size != 0 ? size : 1); block != nullptr) return block;
  return call_new(next, form, size, second, 0);
}
[[gnu::always_inline]] inline void* call_plain_new(Next<New>& next, Form form, std::size_t size,
                                                   std::uintptr_t second) {
  if (form == Form::kPlain) second = 0;  // no argument of that form
  if (behind.load(std::memory_order_relaxed) == Behind::kMalloc) [[likely]]
    if (void* const block = counted_malloc(size != 0 ? size : 1); block != nullptr) [[likely]]
      return block;
  return find_plain_new(next, form, size, second);
}

[[gnu::noinline]] void call_other_delete(Next<Delete>& next, void* block, std::uintptr_t second, std::uintptr_t third) {
  auto* const function = next.get();
  if (function == nullptr) return counted_free(block);
  freed(block);
  thread.deleted = block;
  function(block, second, third);
  thread.deleted = nullptr;
}
[[gnu::noinline]] void find_delete(Next<Delete>& next, void* block, std::uintptr_t second, std::uintptr_t third) {
  if (is_malloc(next)) return counted_free(block);
  call_other_delete(next, block, second, third);
}
[[gnu::always_inline]] inline void call_delete(Next<Delete>& next, void* block, std::uintptr_t second,
                                               std::uintptr_t third) {
  if (behind.load(std::memory_order_relaxed) == Behind::kMalloc) [[likely]]
    return counted_free(block);
  find_delete(next, block, second, third);
}

}  // namespace
}  // namespace windlass::alloc

// NOLINTBEGIN(bugprone-reserved-identifier)
#define WINDLASS_PLAIN_NEW(name, form)                                                             \
  static constinit windlass::alloc::Next<windlass::alloc::New> next##name(#name);                  \
  extern "C" [[gnu::visibility("default")]] void* name(std::size_t size, std::uintptr_t second) {  \
    return windlass::alloc::call_plain_new(next##name, windlass::alloc::Form::form, size, second); \
  }
#define WINDLASS_NEW(name, form)                                                                    \
  static constinit windlass::alloc::Next<windlass::alloc::New> next##name(#name);                   \
  extern "C" [[gnu::visibility("default")]] void* name(std::size_t size, std::uintptr_t second,     \
                                                       std::uintptr_t third) {                      \
    return windlass::alloc::call_new(next##name, windlass::alloc::Form::form, size, second, third); \
  }
#define WINDLASS_DELETE(name)                                                                                     \
  static constinit windlass::alloc::Next<windlass::alloc::Delete> next##name(#name);                              \
  extern "C" [[gnu::visibility("default")]] void name(void* block, std::uintptr_t second, std::uintptr_t third) { \
    windlass::alloc::call_delete(next##name, block, second, third);                                               \
  }
WINDLASS_PLAIN_NEW(_Znwm, kPlain)
WINDLASS_PLAIN_NEW(_Znam, kPlain)
WINDLASS_PLAIN_NEW(_ZnwmRKSt9nothrow_t, kNothrow)
WINDLASS_PLAIN_NEW(_ZnamRKSt9nothrow_t, kNothrow)
WINDLASS_NEW(_ZnwmSt11align_val_t, kAligned)
WINDLASS_NEW(_ZnamSt11align_val_t, kAligned)
WINDLASS_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, kAlignedNothrow)
WINDLASS_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, kAlignedNothrow)
WINDLASS_DELETE(_ZdlPv)
WINDLASS_DELETE(_ZdlPvm)
WINDLASS_DELETE(_ZdlPvSt11align_val_t)
WINDLASS_DELETE(_ZdlPvmSt11align_val_t)
WINDLASS_DELETE(_ZdlPvRKSt9nothrow_t)
WINDLASS_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
WINDLASS_DELETE(_ZdaPv)
WINDLASS_DELETE(_ZdaPvm)
WINDLASS_DELETE(_ZdaPvSt11align_val_t)
WINDLASS_DELETE(_ZdaPvmSt11align_val_t)
WINDLASS_DELETE(_ZdaPvRKSt9nothrow_t)
WINDLASS_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
// NOLINTEND(bugprone-reserved-identifier)
