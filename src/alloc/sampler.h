// Which allocations are samples, and what becomes of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "alloc/blocks.h"

namespace windlass::alloc {

struct Thread {
  std::uint64_t left = 0;  // an allocation of so many bytes, or more, is looked at more closely
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

// Of a block, whose bytes have not been counted.
[[gnu::noinline]] void look_closer(void* block, std::size_t size);
[[gnu::noinline]] void count_freed(const void* block, std::uint32_t record, SizeOfSample size);
[[gnu::noinline]] void look_for_freed(void* block);

// Counts the bytes of an allocation that is no sample. True if look_closer() has to be called for the block. May be
// called before the allocation, even if that fails: the distances between samples have no memory.
inline bool must_look_closer(std::size_t size) {
  ++thread.allocations;
  if (size >= thread.left) [[unlikely]]
    return true;
  thread.left -= size;
  return false;
}
inline void allocated(void* block, std::size_t size) {
  if (block != nullptr && must_look_closer(size)) [[unlikely]]
    look_closer(block, size);
}

// To be called before.
inline void freed(void* block) {
  if (blocks.may_have(block)) [[unlikely]]
    look_for_freed(block);
}

}  // namespace windlass::alloc
