// The region's records, found or made by the processes that allocate.
#pragma once

#include <cstdint>
#include <span>

#include "alloc/region.h"

namespace windlass::alloc {

struct Stack {
  std::uint32_t process = 0;  // the number of the address space
  std::uint32_t tgid = 0, tid = 0;
  std::uint16_t end = 0;               // wl_end
  std::span<const std::uint64_t> pcs;  // innermost first, as backtrace() gives them
};

class Stacks {
 public:
  // The file that the environment names; false without one.
  bool open(const char* path);

  [[nodiscard]] Header& header() const { return *reinterpret_cast<Header*>(base_); }
  // The place of the stack's record; 0: there is no room. Signal-safe, lock-free.
  [[nodiscard]] std::uint32_t find(const Stack& stack);
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
