// The sampled blocks that live: by address, their stacks and sizes. Lock-free, in memory of its own, which is empty in
// a child after fork(). Bounded: a block that finds no room is not followed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "alloc/chance.h"

namespace windlass::alloc {

class Blocks {
 public:
  // Room for about `most` blocks; less if the system does not give so much. False without any. `each`: nearly every
  // block will be there.
  bool open(std::size_t most, bool each);

  // False if there is no room.
  bool add(const void* block, std::uint32_t record, SizeOfSample size);

  // Brings the place of a block near, for an add() that comes soon.
  void expect(const void* block) const {
    if (blocks_ != nullptr) __builtin_prefetch(place_of(reinterpret_cast<std::uint64_t>(block) & kAddress), 1);
  }

  // What add() was given, once; false for other blocks. Called before the block is freed: afterwards another thread may
  // get the same address.
  bool take(const void* block, std::uint32_t& record, SizeOfSample& size) {
    if (!may_have(block)) [[likely]]
      return false;
    return find_and_take(block, record, size);
  }

 private:
  // Four in a line of the cache. A pointer has no more than 48 bits, or a tag above.
  struct Block {
    std::atomic<std::uint64_t> address;  // and the upper part of the size; 0: free
    std::uint32_t size, record;
  };
  static constexpr std::uint64_t kAddress = (std::uint64_t{1} << 48) - 1;
  static constexpr std::size_t kWindow = 16;  // a block is so near to its place
  // Of blocks by a hash: how many there are. Small, so that it stays in the first-level cache: freeing what is not
  // sampled must cost next to nothing. A full counter stays.
  static constexpr std::size_t kCounters = std::size_t{1} << 14;

  static std::size_t counter_of(const void* block) {
    return reinterpret_cast<std::uint64_t>(block) * 0x9e3779b97f4a7c15ull >> 50;
  }
  [[nodiscard]] bool may_have(const void* block) const {
    return counters_ != nullptr && counters_[counter_of(block)].load(std::memory_order_relaxed) != 0;
  }
  // Neighbours in memory are neighbours here, which caches and pages like. Two blocks of glibc's are 32 bytes apart.
  // Other allocators' may be 8 bytes apart: those that find no room are at one of some places by a hash.
  static constexpr unsigned kPlaces = 4;
  [[nodiscard]] Block* place_of(std::uint64_t address, unsigned number = 0) const {
    const std::uint64_t place = number == 0 ? (address >> 5) + (address >> 32) * 0x9e3779b1
                                            : address * 0x9e3779b97f4a7c15ull >> (8 + 8 * number);
    return blocks_ + (static_cast<std::size_t>(place) & mask_);
  }
  bool find_and_take(const void* block, std::uint32_t& record, SizeOfSample& size);

  std::atomic<std::uint8_t>* counters_ = nullptr;
  Block* blocks_ = nullptr;
  std::size_t mask_ = 0;
};

}  // namespace windlass::alloc
