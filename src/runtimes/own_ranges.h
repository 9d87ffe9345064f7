#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/address_range.h"

namespace windlass::runtimes {

// The memory that a runtime makes code in, as its process tells of it. Parts of a mapping are mapped again, with other
// rights, and code may begin in front of such a part: what touches is one range. Bound: kMost, then all are forgotten.
class OwnRanges {
 public:
  static constexpr std::size_t kMost = 65536;

  void add(AddressRange range);
  [[nodiscard]] std::optional<AddressRange> at(std::uint64_t address) const;

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // begin, end
};

}  // namespace windlass::runtimes
