// A hash table of the numbers of things that are kept elsewhere. A slot has 32 bits of the hash, so that few other
// things are looked at: each look is a cache miss in a large profile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::exporter {

inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}
// Different pairs have different hashes. mix_hash(a, b) has one for all pairs whose bits differ in the same places.
inline std::uint64_t hash_of_pair(std::uint32_t a, std::uint32_t b) { return mix_hash(0, std::uint64_t{a} << 32 | b); }

// Eight bytes a slot, at most half of them used. Numbers are below profile::kNone.
class HashSlots {
 public:
  // The number with this hash for which equal(number) holds; profile::kNone: there is none.
  template <typename Equal>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Equal equal) const {
    if (slots_.empty()) return profile::kNone;
    const std::uint32_t tag = tag_of(hash);
    for (std::size_t at = hash & mask(); slots_[at].number != profile::kNone; at = (at + 1) & mask())
      if (slots_[at].tag == tag && equal(slots_[at].number)) return slots_[at].number;
    return profile::kNone;
  }
  // Starts to load what find() with this hash will look at.
  void prefetch(std::uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & mask()]);
  }
  // Adds one that is not there. hash_of(number): the hash of any that are.
  template <typename HashOf>
  void add(std::uint32_t number, HashOf hash_of) {
    if (++used_ * 2 > slots_.size()) {
      std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& slot : old)
        if (slot.number != profile::kNone) put(slot.number, hash_of(slot.number));
    }
    put(number, hash_of(number));
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t number = profile::kNone;
  };
  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  [[nodiscard]] std::size_t mask() const { return slots_.size() - 1; }
  void put(std::uint32_t number, std::uint64_t hash) {
    std::size_t at = hash & mask();
    while (slots_[at].number != profile::kNone) at = (at + 1) & mask();
    slots_[at] = {tag_of(hash), number};
  }

  std::vector<Slot> slots_;  // a power of two of them
  std::size_t used_ = 0;
};

}  // namespace windlass::exporter
