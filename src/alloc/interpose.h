// malloc() and free() as this library has them: between the program and the next ones. What is no sample is handed on
// by a jump, so that it costs a few loads and no frame.
#pragma once

#include <cstddef>
#include <cstdint>

#include "alloc/next.h"
#include "alloc/sampler.h"

namespace windlass::alloc {

// dlsym() may allocate while the next functions are looked for. That memory is never freed.
inline constexpr std::size_t kEarly = 16384;
extern char early[kEarly];
inline bool is_early(const void* block) {
  return reinterpret_cast<std::uintptr_t>(block) - reinterpret_cast<std::uintptr_t>(early) < kEarly;
}

extern constinit Next<void*(std::size_t)> next_malloc;
extern constinit Next<void(void*)> next_free;

// mapping_functions.cpp's. Called with a function of the allocator behind.
void find_next_mappers(const void* allocator);

// The same, of what may be a sample, and of all before the next functions are known.
[[gnu::noinline, nodiscard]] void* malloc_closely(std::size_t size);
[[gnu::noinline]] void free_closely(void* block);

[[gnu::always_inline, nodiscard]] inline void* counted_malloc(std::size_t size) {
  if (must_look_closer(size)) [[unlikely]]
    return malloc_closely(size);
  return next_malloc.known()(size);
}

[[gnu::always_inline]] inline void counted_free(void* block) {
  if (is_early(block) || blocks.may_have(block)) [[unlikely]]
    return free_closely(block);
  next_free.known()(block);
}

}  // namespace windlass::alloc
