// operator new and operator delete. Those of libstdc++ call malloc() and free(), which count. Those of other allocators
// do not, so they are counted here. The functions have their names in the ABI: the compiler would take operators for
// its own. Arguments behind the first (alignment, size, nothrow) are in registers, and handed on as they came.
#include <cstddef>
#include <cstdint>

#include "alloc/next.h"
#include "alloc/sampler.h"

namespace windlass::alloc {
namespace {

using New = void*(std::size_t, std::uintptr_t, std::uintptr_t);
using Delete = void(void*, std::uintptr_t, std::uintptr_t);

void* call_new(Next<New>& next, std::size_t size, std::uintptr_t second, std::uintptr_t third) {
  const std::uint64_t before = thread.allocations;
  void* const block = next.get()(size, second, third);
  if (thread.allocations == before) allocated(block, size);
  return block;
}

void call_delete(Next<Delete>& next, void* block, std::uintptr_t second, std::uintptr_t third) {
  if (block != nullptr) freed(block);
  next.get()(block, second, third);
}

}  // namespace
}  // namespace windlass::alloc

// NOLINTBEGIN(bugprone-reserved-identifier)
#define WINDLASS_NEW(name)                                                                      \
  static constinit windlass::alloc::Next<windlass::alloc::New> next##name(#name);               \
  extern "C" [[gnu::visibility("default")]] void* name(std::size_t size, std::uintptr_t second, \
                                                       std::uintptr_t third) {                  \
    return windlass::alloc::call_new(next##name, size, second, third);                          \
  }
#define WINDLASS_DELETE(name)                                                                                     \
  static constinit windlass::alloc::Next<windlass::alloc::Delete> next##name(#name);                              \
  extern "C" [[gnu::visibility("default")]] void name(void* block, std::uintptr_t second, std::uintptr_t third) { \
    windlass::alloc::call_delete(next##name, block, second, third);                                               \
  }
WINDLASS_NEW(_Znwm)
WINDLASS_NEW(_Znam)
WINDLASS_NEW(_ZnwmRKSt9nothrow_t)
WINDLASS_NEW(_ZnamRKSt9nothrow_t)
WINDLASS_NEW(_ZnwmSt11align_val_t)
WINDLASS_NEW(_ZnamSt11align_val_t)
WINDLASS_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t)
WINDLASS_NEW(_ZnamSt11align_val_tRKSt9nothrow_t)
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
