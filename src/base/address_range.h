#pragma once

#include <cstdint>

namespace windlass {

// Ends before `end`.
struct AddressRange {
  std::uint64_t begin = 0, end = 0;

  [[nodiscard]] constexpr bool contains(std::uint64_t address) const { return begin <= address && address < end; }
  [[nodiscard]] constexpr bool overlaps(const AddressRange& other) const {
    return begin < other.end && other.begin < end;
  }
};

}  // namespace windlass
