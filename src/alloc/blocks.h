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
  // Room for about `most` blocks; less if the system does not give so much. False without any. `period`: bytes between
  // two samples, on average; up to 1: nearly every block will be there.
  bool open(std::size_t most, std::uint64_t period);

  // False if there is no room.
  bool add(const void* block, std::uint32_t record, SizeOfSample size);

  // Brings the place of a block near, for an add() that comes soon.
  void expect(const void* block) const {
    if (blocks_ != nullptr) __builtin_prefetch(place_of(reinterpret_cast<std::uint64_t>(block) & kAddress), 1);
  }

  // From now on blocks that add() was not given are not there. Before, any may be.
  void begin() { counters_ = &none_; }
  // False for most blocks that add() was not given. Costs two loads.
  [[nodiscard]] bool may_have(const void* block) const {
    return counters_[counter_of(block)].load(std::memory_order_relaxed) != 0;
  }
  // What add() was given, once; false for other blocks. Called before the block is freed: afterwards another thread may
  // get the same address.
  bool take(const void* block, std::uint32_t& record, SizeOfSample& size) {
    return may_have(block) && find_and_take(block, record, size);
  }
  // The same of a block that may be there.
  bool find_and_take(const void* block, std::uint32_t& record, SizeOfSample& size);

 private:
  // Four in a line of the cache. A pointer has no more than 48 bits, or a tag above.
  struct Block {
    std::atomic<std::uint64_t> address;  // and the upper part of the size; 0: free
    std::uint32_t size, record;
  };
  static constexpr std::uint64_t kAddress = (std::uint64_t{1} << 48) - 1;
  static constexpr std::size_t kWindow = 16;  // a block is so near to its place
  // How many blocks of a granule of memory there are. A granule is a page, or less if samples are close together: few
  // have a sample. Neighbours in memory share a line of the cache here. Freeing what is not sampled must cost next to
  // nothing. A full counter stays.
  static constexpr std::size_t kCounters = std::size_t{1} << 16;

  // The upper bits keep the arenas of threads apart, which begin at multiples of 64 MiB.
  [[nodiscard]] std::size_t counter_of(const void* block) const {
    const auto address = reinterpret_cast<std::uint64_t>(block);
    return ((address >> granule_) + (address >> 26) * 0x6b5) & counter_mask_;
  }
  // Neighbours in memory are neighbours here, which caches and pages like. Two blocks of glibc's are 32 bytes apart.
  // Other allocators' may be 8 bytes apart: those that find no room are at one of some places by a hash. Few blocks
  // have their first places in few pages, as the first touch of a page costs more than the rest of a sample.
  static constexpr unsigned kPlaces = 4;
  [[nodiscard]] Block* place_of(std::uint64_t address, unsigned number = 0) const {
    const std::uint64_t place = number == 0 ? (address >> 5) + (address >> 32) * 0x9e3779b1
                                            : address * 0x9e3779b97f4a7c15ull >> (8 + 8 * number);
    return blocks_ + (static_cast<std::size_t>(place) & mask_ >> narrowed_[number]);
  }
  static constinit inline std::atomic<std::uint8_t> none_ = 0, any_ = 1;

  std::atomic<std::uint8_t>* counters_ = &any_;
  std::size_t counter_mask_ = 0;
  unsigned granule_ = 0;              // a power of 2
  std::atomic<unsigned> places_ = 1;  // of a block, that are in use: as many are looked at
  Block* blocks_ = nullptr;
  std::size_t mask_ = 0;
  std::uint8_t narrowed_[kPlaces] = {};  // bits by which the room of such places is less than all of it
};

}  // namespace windlass::alloc
