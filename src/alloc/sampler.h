// Which allocations are samples, and what becomes of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "alloc/blocks.h"
#include "alloc/mappings.h"

namespace windlass::alloc {

struct Thread {
  // An allocation of so many bytes, or more, is looked at more closely. 0 until the next functions are known.
  std::uint64_t left = 0;
  std::uint64_t random = 0;
  std::uint64_t looked = 0;       // allocations that were looked at
  const void* deleted = nullptr;  // by operator delete, which has looked for it and calls free() now
  std::uint32_t process = 0;      // in which it has begun; another one after fork()
  std::uint32_t tid = 0;
  std::uint32_t number = 0;  // of its KeptStack
};

// The library is loaded with the program, so its thread-local memory is at a fixed distance from the thread's pointer.
extern constinit thread_local Thread thread [[gnu::tls_model("initial-exec"), gnu::visibility("hidden")]];
extern constinit Blocks blocks;

// interpose.cpp's. True once malloc(), calloc() and free() can be handed on without a look whether they can.
[[nodiscard]] bool find_next_functions();

enum class Kind : std::uint8_t { kBlock, kMapping };

// Of a block, whose bytes have not been counted.
[[gnu::noinline]] void look_closer(void* block, std::size_t size, Kind kind = Kind::kBlock);
[[gnu::noinline]] void count_freed(const void* block, std::uint32_t record, SizeOfSample size);
[[gnu::noinline]] void look_for_freed(void* block);

// Counts the bytes of an allocation that is no sample. True if look_closer() has to be called for the block. May be
// called before the allocation, even if that fails: the distances between samples have no memory.
inline bool must_look_closer(std::size_t size) {
  if (size >= thread.left) [[unlikely]]
    return true;
  thread.left -= size;
  return false;
}
// Changes with each allocation that is counted, unless that has no bytes.
struct Count {
  std::uint64_t left, looked;
  bool operator==(const Count&) const = default;
};
inline Count count_now() { return {thread.left, thread.looked}; }
inline void allocated(void* block, std::size_t size) {
  if (block != nullptr && must_look_closer(size)) [[unlikely]]
    look_closer(block, size);
}

// An anonymous mapping has been made in place of those that were there.
void mapped(void* begin, std::size_t size);
// Is there a mapping to look for in unmapped()?
[[nodiscard]] bool follows_mappings();
// Of a part of the address space in which mappings end. Called before: afterwards another thread may get the addresses.
void unmapped(const void* begin, std::size_t size);
// The same in two steps, of a call that often fails: count_ended() or put_back().
struct Ended {
  static constexpr std::size_t kMost = 8;  // more of them count at once
  Mapping all[kMost];
  std::size_t count = 0;
};
[[nodiscard]] Ended take_mappings(const void* begin, std::size_t size);
void count_ended(const Ended& ended);
void put_back(const Ended& ended);

// To be called before.
inline void freed(void* block) {
  if (blocks.may_have(block)) [[unlikely]]
    look_for_freed(block);
}

}  // namespace windlass::alloc
