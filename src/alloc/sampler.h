// Which allocations are samples, and what becomes of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "alloc/blocks.h"

namespace windlass::alloc {

struct Thread {
  std::int64_t left = 0;  // bytes until the next sample; below 0: look closer
  std::uint64_t random = 0;
  std::uint64_t allocations = 0;  // that this library has seen, which tells operator new whether malloc() was called
  const void* deleted = nullptr;  // by operator delete, which has looked for it and calls free() now
  std::uint32_t process = 0;      // in which it has begun; another one after fork()
  std::uint32_t tid = 0;
  std::uint32_t number = 0;  // of its KeptStack
};

// The library is loaded with the program, so its thread-local memory is at a fixed distance from the thread's pointer.
extern constinit thread_local Thread thread [[gnu::tls_model("initial-exec"), gnu::visibility("hidden")]];
extern constinit Blocks blocks;

[[gnu::noinline]] void look_closer(void* block, std::size_t size);
[[gnu::noinline]] void count_freed(const void* block, std::uint32_t record, SizeOfSample size);

inline void allocated(void* block, std::size_t size) {
  if (block == nullptr) return;
  ++thread.allocations;
  // What is larger than any distance is a sample anyway.
  thread.left -= size < std::size_t{1} << 60 ? static_cast<std::int64_t>(size) : std::int64_t{1} << 60;
  if (thread.left < 0) [[unlikely]]
    look_closer(block, size);
}

// To be called before.
inline void freed(void* block) {
  std::uint32_t record = 0;
  SizeOfSample size(0);
  if (block != thread.deleted && blocks.take(block, record, size)) [[unlikely]]
    count_freed(block, record, size);
}

// malloc() and free() as this library has them.
[[nodiscard]] void* counted_malloc(std::size_t size);
void counted_free(void* block);

}  // namespace windlass::alloc
