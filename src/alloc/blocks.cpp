#include "alloc/blocks.h"

#include <sys/mman.h>

#include <cstring>

namespace windlass::alloc {

bool Blocks::open(std::size_t most, bool each) {
  std::size_t room = 1;
  while (room < most) room *= 2;
  for (; room >= 1024; room /= 2) {
    const std::size_t size = kCounters + (room + kWindow) * sizeof(Block);
    void* const memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    if (madvise(memory, size, MADV_WIPEONFORK) != 0) {  // Linux 4.14
      munmap(memory, size);
      return false;
    }
    (void)madvise(memory, size, MADV_DONTDUMP);
    mask_ = room - 1;
    blocks_ = reinterpret_cast<Block*>(static_cast<std::byte*>(memory) + kCounters);
    if (each) std::memset(memory, 0xff, kCounters);  // counting would be in vain
    counters_ = static_cast<std::atomic<std::uint8_t>*>(memory);
    return true;
  }
  return false;
}

bool Blocks::add(const void* block, std::uint32_t record, Weight weight) {
  if (counters_ == nullptr) return false;
  const auto address = reinterpret_cast<std::uint64_t>(block);
  Block* const first = blocks_ + place_of(address);
  for (Block* at = first; at != first + kWindow; ++at) {
    std::uint64_t none = 0;
    if (at->address.load(std::memory_order_relaxed) != 0 ||
        !at->address.compare_exchange_strong(none, kBusy, std::memory_order_relaxed))
      continue;
    at->bytes = weight.bytes;
    at->count = static_cast<std::uint32_t>(weight.count);
    at->record = record;
    auto& counter = counters_[counter_of(block)];
    std::uint8_t count = counter.load(std::memory_order_relaxed);
    while (count != 0xff && !counter.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) continue;
    at->address.store(address, std::memory_order_release);
    return true;
  }
  return false;
}

bool Blocks::find_and_take(const void* block, std::uint32_t& record, Weight& weight) {
  const auto address = reinterpret_cast<std::uint64_t>(block);
  Block* const first = blocks_ + place_of(address);
  for (Block* at = first; at != first + kWindow; ++at) {
    if (at->address.load(std::memory_order_acquire) != address) continue;
    record = at->record;
    weight = {at->count, at->bytes};
    std::uint64_t expected = address;
    if (!at->address.compare_exchange_strong(expected, 0, std::memory_order_release)) return false;  // freed twice
    auto& counter = counters_[counter_of(block)];
    std::uint8_t count = counter.load(std::memory_order_relaxed);
    while (count != 0xff && count != 0 && !counter.compare_exchange_weak(count, count - 1, std::memory_order_relaxed))
      continue;
    return true;
  }
  return false;
}

}  // namespace windlass::alloc
