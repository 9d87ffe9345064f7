// The sampled blocks that live: by address, what they stand for. Lock-free, in memory of its own, which is empty in a
// child after fork(). Bounded: a block that finds no room is not followed.
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
  bool add(const void* block, std::uint32_t record, Weight weight);

  // What add() was given, once; false for other blocks. Called before the block is freed: afterwards another thread may
  // get the same address.
  bool take(const void* block, std::uint32_t& record, Weight& weight) {
    if (!may_have(block)) [[likely]]
      return false;
    return find_and_take(block, record, weight);
  }

 private:
  struct Block {
    std::atomic<std::uint64_t> address;  // 0: free; kBusy: being written
    std::uint64_t bytes;
    std::uint32_t count, record;
  };
  static constexpr std::uint64_t kBusy = 1;
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
  // Neighbours in memory are neighbours here, which caches and pages like.
  [[nodiscard]] std::size_t place_of(std::uint64_t address) const {
    return static_cast<std::size_t>((address >> 4) + (address >> 32) * 0x9e3779b1) & mask_;
  }
  bool find_and_take(const void* block, std::uint32_t& record, Weight& weight);

  std::atomic<std::uint8_t>* counters_ = nullptr;
  Block* blocks_ = nullptr;
  std::size_t mask_ = 0;
};

}  // namespace windlass::alloc
