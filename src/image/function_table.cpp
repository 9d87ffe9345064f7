#include "image/function_table.h"

#include <algorithm>
#include <numeric>

namespace windlass::image {

FunctionTable::FunctionTable(ByteView entries, std::uint32_t stride)
    : entries_(entries), stride_(stride), count_(entries.size() / stride) {
  for (std::size_t i = 1; i < count_; ++i) {
    if (begin_of(i) >= begin_of(i - 1)) continue;
    order_.resize(count_);
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return begin_of(a) < begin_of(b); });
    return;
  }
}

std::optional<std::size_t> FunctionTable::last_at_or_before(std::uint32_t rva) const {
  std::size_t low = 0;
  std::size_t count = count_;
  while (count > 0) {
    const std::size_t half = count / 2;
    if (begin_of(stored_index(low + half)) <= rva) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  if (low == 0) return std::nullopt;
  return low - 1;
}

}  // namespace windlass::image
