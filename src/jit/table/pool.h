// Allocates pieces of a section of a code manager's table, in bytes or in records. The bookkeeping is in the writer's
// own memory. Freed pieces serve requests of the same size. Larger ones are cut only when the rest is full. Neighbours
// are joined when nothing else helps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace windlass::manager {

class Pool {
 public:
  // Bytes [first, size) of the section.
  Pool(std::uint32_t first, std::uint32_t size) : next_(first), size_(size) {}

  // `size`: not 0; of pieces that are to be aligned, a multiple of that. Logarithmic in the number of different sizes,
  // but where joining is needed.
  [[nodiscard]] std::optional<std::uint32_t> take(std::uint32_t size) {
    if (const auto same = free_.find(size); same != free_.end()) return pop(same);
    if (size <= size_ - next_) {
      next_ += size;
      return next_ - size;
    }
    if (free_.lower_bound(size) == free_.end()) join();
    const auto larger = free_.lower_bound(size);
    if (larger == free_.end()) return std::nullopt;
    const std::uint32_t rest = larger->first - size;
    const std::uint32_t place = pop(larger);
    if (rest != 0) give(place + size, rest);
    return place;
  }
  void give(std::uint32_t place, std::uint32_t size) { free_[size].push_back(place); }
  // Nothing from here on was ever taken.
  [[nodiscard]] std::uint32_t used() const { return next_; }

 private:
  void join() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pieces;  // place, size
    for (const auto& [size, places] : free_)
      for (const std::uint32_t place : places) pieces.emplace_back(place, size);
    std::sort(pieces.begin(), pieces.end());
    free_.clear();
    for (std::size_t i = 0; i < pieces.size();) {
      auto [place, size] = pieces[i];
      for (++i; i < pieces.size() && pieces[i].first == place + size; ++i) size += pieces[i].second;
      give(place, size);
    }
  }

  using Free = std::map<std::uint32_t, std::vector<std::uint32_t>>;  // by size, none empty
  std::uint32_t pop(Free::iterator from) {
    const std::uint32_t place = from->second.back();
    from->second.pop_back();
    if (from->second.empty()) free_.erase(from);
    return place;
  }

  std::uint32_t next_;
  std::uint32_t size_;
  Free free_;
};

}  // namespace windlass::manager
