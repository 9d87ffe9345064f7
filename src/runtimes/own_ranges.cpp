#include "runtimes/own_ranges.h"

#include <algorithm>
#include <iterator>

namespace windlass::runtimes {

void OwnRanges::add(AddressRange range) {
  if (ranges_.size() >= kMost) ranges_.clear();
  for (auto at = ranges_.upper_bound(range.end); at != ranges_.begin() && std::prev(at)->second >= range.begin;) {
    --at;
    range.begin = std::min(range.begin, at->first);
    range.end = std::max(range.end, at->second);
    at = ranges_.erase(at);
  }
  ranges_[range.begin] = range.end;
}

std::optional<AddressRange> OwnRanges::at(std::uint64_t address) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin() || address >= std::prev(after)->second) return std::nullopt;
  return AddressRange{std::prev(after)->first, std::prev(after)->second};
}

}  // namespace windlass::runtimes
