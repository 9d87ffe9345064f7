// The functions that stand in for the allocator's. Each calls the next one: libc's, or that of another allocator.
#include "alloc/interpose.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "alloc/own_stack.h"

namespace windlass::alloc {
namespace {

constinit std::atomic<std::size_t> early_used = 0;

void* early_allocate(std::size_t size) {
  const std::size_t room = (size + 15) & ~std::size_t{15};
  const std::size_t at = early_used.fetch_add(room, std::memory_order_relaxed);
  if (room > sizeof early || at > sizeof early - room) std::abort();
  return early + at;
}

constinit Next<void*(std::size_t)> next_valloc("valloc"), next_pvalloc("pvalloc");
constinit Next<void*(std::size_t, std::size_t)> next_calloc("calloc"), next_memalign("memalign"),
    next_aligned_alloc("aligned_alloc");
constinit Next<void*(void*, std::size_t)> next_realloc("realloc");
constinit Next<int(void**, std::size_t, std::size_t)> next_posix_memalign("posix_memalign");
constinit Next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)> next_pthread_create("pthread_create");

}  // namespace

alignas(16) constinit char early[kEarly] = {};
constinit Next<void*(std::size_t)> next_malloc("malloc");
constinit Next<void(void*)> next_free("free");

bool find_next_functions() {
  if (next_malloc.get() == nullptr || next_calloc.get() == nullptr || next_free.get() == nullptr) return false;
  find_next_mappers(reinterpret_cast<const void*>(next_malloc.known()));
  return true;
}

void* malloc_closely(std::size_t size) {
  auto* const next = next_malloc.get();
  if (next == nullptr) return early_allocate(size);
  void* const block = next(size);
  if (block != nullptr) look_closer(block, size);
  return block;
}

void free_closely(void* block) {
  if (is_early(block)) return;
  look_for_freed(block);
  if (auto* const next = next_free.get(); next != nullptr) next(block);
}

}  // namespace windlass::alloc

using namespace windlass::alloc;

#define WINDLASS_EXPORTED extern "C" [[gnu::visibility("default")]]

WINDLASS_EXPORTED void* malloc(std::size_t size) noexcept { return counted_malloc(size); }

static void* calloc_closely(std::size_t count, std::size_t size) {
  auto* const next = next_calloc.get();
  if (next == nullptr) return early_allocate(count * size);
  void* const block = next(count, size);
  allocated(block, count * size);
  return block;
}

WINDLASS_EXPORTED void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, size, &all) || must_look_closer(all)) [[unlikely]]
    return calloc_closely(count, size);
  return next_calloc.known()(count, size);
}

WINDLASS_EXPORTED void free(void* block) noexcept { counted_free(block); }

// The old block is freed and a new one allocated, even if they are at one address.
WINDLASS_EXPORTED void* realloc(void* block, std::size_t size) noexcept {
  auto* const next = next_realloc.get();
  if (next == nullptr || is_early(block)) {
    void* const moved = next == nullptr ? early_allocate(size) : malloc(size);
    const std::size_t behind =
        block != nullptr ? static_cast<std::size_t>(early + sizeof early - static_cast<char*>(block)) : 0;
    if (moved != nullptr && block != nullptr) std::memmove(moved, block, size < behind ? size : behind);
    return moved;
  }
  std::uint32_t record = 0;
  SizeOfSample old_size(0);
  const bool sampled = block != nullptr && blocks.take(block, record, old_size);
  void* const moved = next(block, size);
  // The old block lives on where there is no room for the new one.
  if (sampled && !(moved == nullptr && size != 0 && blocks.add(block, record, old_size)))
    count_freed(block, record, old_size);
  allocated(moved, size);
  return moved;
}

WINDLASS_EXPORTED int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  auto* const next = next_posix_memalign.get();
  if (next == nullptr) return ENOMEM;
  const int error = next(block, alignment, size);
  if (error == 0) allocated(*block, size);
  return error;
}

#define WINDLASS_ALIGNED(name)                                                     \
  WINDLASS_EXPORTED void* name(std::size_t alignment, std::size_t size) noexcept { \
    auto* const next = next_##name.get();                                          \
    void* const block = next != nullptr ? next(alignment, size) : nullptr;         \
    allocated(block, size);                                                        \
    return block;                                                                  \
  }
WINDLASS_ALIGNED(aligned_alloc)
WINDLASS_ALIGNED(memalign)

#define WINDLASS_PAGES(name)                                    \
  WINDLASS_EXPORTED void* name(std::size_t size) noexcept {     \
    auto* const next = next_##name.get();                       \
    void* const block = next != nullptr ? next(size) : nullptr; \
    allocated(block, size);                                     \
    return block;                                               \
  }
WINDLASS_PAGES(valloc)
WINDLASS_PAGES(pvalloc)

// Threads' stacks may be small.
WINDLASS_EXPORTED int pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*function)(void*),
                                     void* argument) noexcept {
  auto* const next = next_pthread_create.get();
  if (next == nullptr) return EAGAIN;
  note_thread(attributes);
  return next(made, attributes, function, argument);
}
