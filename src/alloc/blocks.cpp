#include "alloc/blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace windlass::alloc {

namespace {

// One of 128 granules has a sample, or one of many more.
unsigned granule_for(std::uint64_t period) {
  return static_cast<unsigned>(std::clamp(static_cast<int>(std::bit_width(period >> 8)), 4, 12));
}

}  // namespace

bool Blocks::open(std::size_t most, std::uint64_t period) {
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
    counters_ = static_cast<std::atomic<std::uint8_t>*>(memory);
    if (period <= 1) {  // counting would be in vain
      counters_[0].store(0xff, std::memory_order_relaxed);
    } else {
      granule_ = granule_for(period);
      constexpr std::uint8_t kNarrowed[kPlaces] = {10, 6, 3, 0};
      std::ranges::copy(kNarrowed, narrowed_);
      counter_mask_ = kCounters - 1;
    }
    return true;
  }
  return false;
}

// A block is freed after its allocation has returned, so nobody looks for it before the last store here.
bool Blocks::add(const void* block, std::uint32_t record, SizeOfSample size) {
  if (blocks_ == nullptr || size.word() >> SizeOfSample::kBits != 0) return false;
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(block) & kAddress;
  const std::uint64_t word = address | size.word() >> 32 << 48;
  for (unsigned place = 0; place != kPlaces; ++place) {
    Block* const first = place_of(address, place);
    for (Block* at = first; at != first + kWindow; ++at) {
      std::uint64_t none = 0;
      if (at->address.load(std::memory_order_relaxed) != 0 ||
          !at->address.compare_exchange_strong(none, word, std::memory_order_acquire))
        continue;
      at->size = static_cast<std::uint32_t>(size.word());
      at->record = record;
      unsigned places = places_.load(std::memory_order_relaxed);
      while (places <= place && !places_.compare_exchange_weak(places, place + 1, std::memory_order_relaxed)) continue;
      auto& counter = counters_[counter_of(block)];
      std::uint8_t count = counter.load(std::memory_order_relaxed);
      while (count != 0xff && !counter.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) continue;
      return true;
    }
  }
  return false;
}

bool Blocks::find_and_take(const void* block, std::uint32_t& record, SizeOfSample& size) {
  if (blocks_ == nullptr) return false;
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(block) & kAddress;
  const unsigned places = places_.load(std::memory_order_relaxed);
  for (unsigned place = 0; place != places; ++place) {
    Block* const first = place_of(address, place);
    for (Block* at = first; at != first + kWindow; ++at) {
      const std::uint64_t word = at->address.load(std::memory_order_relaxed);
      if ((word & kAddress) != address) continue;
      record = at->record;
      size = SizeOfSample(word >> 48 << 32 | at->size);
      at->address.store(0, std::memory_order_release);
      auto& counter = counters_[counter_of(block)];
      std::uint8_t count = counter.load(std::memory_order_relaxed);
      while (count != 0xff && count != 0 && !counter.compare_exchange_weak(count, count - 1, std::memory_order_relaxed))
        continue;
      return true;
    }
  }
  return false;
}

}  // namespace windlass::alloc
