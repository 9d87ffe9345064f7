// A hash table of the numbers of things that are kept elsewhere: four bytes a slot, and no allocation a thing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace windlass::profiler {

// Numbers are below 2^32 - 1. Hashes should differ in their lower bits.
class NumberTable {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }

  // The number with this hash for which equal(number) holds.
  template <typename Equal>
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t hash, Equal equal) const {
    if (slots_.empty()) return std::nullopt;
    for (std::size_t at = hash & (slots_.size() - 1); slots_[at] != 0; at = (at + 1) & (slots_.size() - 1))
      if (equal(slots_[at] - 1)) return slots_[at] - 1;
    return std::nullopt;
  }
  // Adds one that is not there. hash_of(number) says the hash of any that are.
  template <typename HashOf>
  void add(std::uint32_t number, HashOf hash_of) {
    if (4 * (size_ + 1) > 3 * slots_.size()) {
      std::vector<std::uint32_t> old(slots_.empty() ? 16 : 2 * slots_.size());
      old.swap(slots_);
      for (const std::uint32_t slot : old)
        if (slot != 0) put(slot, hash_of(slot - 1));
    }
    put(number + 1, hash_of(number));
    ++size_;
  }
  void clear() {
    slots_ = {};
    size_ = 0;
  }

 private:
  void put(std::uint32_t slot, std::uint64_t hash) {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }

  std::vector<std::uint32_t> slots_;  // number + 1; 0: free. A power of two of them
  std::size_t size_ = 0;
};

}  // namespace windlass::profiler
