// A hash table that forgets: what a file had shortly before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace windlass::exporter {

// An entry is at its hash's place or beside it, and gives way to the third that belongs there. `Entry`: has place(), 64
// bits of its hash, and is_used(), which is false of a new one. Memory: kMost entries.
template <typename Entry, std::size_t kMost>
class RecentTable {
 public:
  // Null: there is none for which equal(entry) holds.
  template <typename Equal>
  [[nodiscard]] const Entry* find(std::uint64_t place, Equal equal) const {
    const std::size_t at = place & (entries_.size() - 1);
    for (const Entry* entry : {&entries_[at], &entries_[at ^ 1]})
      if (entry->is_used() && equal(*entry)) return entry;
    return nullptr;
  }
  // Starts to load what find() of this place will look at.
  void prefetch(std::uint64_t place) const { __builtin_prefetch(&entries_[place & (entries_.size() - 1)]); }
  void add(const Entry& entry) {
    if (++added_ * 2 > entries_.size() && entries_.size() < kMost) grow();
    put(entry);
  }

 private:
  void put(const Entry& entry) {
    const std::size_t at = entry.place() & (entries_.size() - 1);
    if (entries_[at].is_used()) entries_[at ^ 1] = entries_[at];
    entries_[at] = entry;
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 4);
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.is_used()) put(entry);
  }

  std::vector<Entry> entries_ = std::vector<Entry>(64);  // a power of two of them
  std::size_t added_ = 0;
};

}  // namespace windlass::exporter
