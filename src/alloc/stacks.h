// The region's records, found or made by the processes that allocate.
#pragma once

#include <cstdint>
#include <span>

#include "alloc/region.h"

namespace windlass::alloc {

struct Stack {
  std::uint32_t process = 0;  // the number of the address space
  std::uint32_t tgid = 0, tid = 0;
  std::uint8_t end = 0;                   // wl_end
  bool shared = false;                    // by all threads
  std::span<const std::uint64_t> frames;  // as a Record has them
};

// The hash of a stack: its frames, outermost first, and then whose it is. So stacks with the same callers share a part
// of the work (kept_stack.h).
inline constexpr std::uint64_t kHashOfNoFrames = 0;
inline std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}
[[nodiscard]] inline std::uint64_t hash_of_stack(std::uint64_t hash_of_frames, const Stack& stack) {
  const std::uint64_t hash = mixed(hash_of_frames, std::uint64_t{stack.process} << 32 | stack.end << 1 | stack.shared);
  return mixed(hash, stack.tid) | 1;
}
[[nodiscard]] std::uint64_t hash_of_stack(const Stack& stack);

// Makes the pcs of a backtrace() of this thread frames of a Record. Reads the code at each.
void mark_interrupted(std::span<std::uint64_t> pcs);

class Stacks {
 public:
  // The file that the environment names; false without one.
  bool open(const char* path);

  [[nodiscard]] Header& header() const { return *reinterpret_cast<Header*>(base_); }
  // The place of the stack's record; 0: there is no room. `hash`: hash_of_stack(). Signal-safe, lock-free.
  [[nodiscard]] std::uint32_t find(const Stack& stack, std::uint64_t hash);
  [[nodiscard]] Record& record(std::uint32_t place) const {
    return *reinterpret_cast<Record*>(base_ + std::size_t{place} * kUnit);
  }
  // Most of the room is used: threads share records from here on.
  [[nodiscard]] bool nearly_full() const { return header().used.load(std::memory_order_relaxed) > kMostUnits / 2; }

 private:
  std::uint32_t make(const Stack& stack, std::uint64_t hash);
  // Other processes write the index, too.
  static bool is_record(std::uint32_t place) {
    return place >= kRecordsAt / kUnit && place <= (kRegionSize - sizeof(Record)) / kUnit;
  }

  std::byte* base_ = nullptr;
};

}  // namespace windlass::alloc
