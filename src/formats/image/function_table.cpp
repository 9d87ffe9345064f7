#include "formats/image/function_table.h"

#include <algorithm>
#include <numeric>

namespace windlass::image {

FunctionTable::FunctionTable(ByteView entries, std::uint32_t stride)
    : entries_(entries), stride_(stride), count_(entries.size() / stride) {
  if (count_ == 0) return;
  sort();
  index();
}

void FunctionTable::sort() {
  std::size_t i = 1;
  while (i < count_ && begin_of(i) >= begin_of(i - 1)) ++i;
  if (i == count_) return;
  order_.resize(count_);
  std::iota(order_.begin(), order_.end(), std::uint32_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return begin_of(a) < begin_of(b); });
}

void FunctionTable::index() {
  begins_.resize(count_);
  for (std::size_t i = 0; i < count_; ++i) begins_[i] = begin_of(stored_index(i));
  const std::uint32_t span = begins_.back() - begins_.front();
  while (shift_ < 31 && span >> shift_ >= count_) ++shift_;
  below_.resize(std::size_t{span >> shift_} + 2);
  std::uint32_t rank = 0;
  for (std::size_t piece = 0; piece + 1 < below_.size(); ++piece) {
    const std::uint32_t start = begins_.front() + static_cast<std::uint32_t>(piece << shift_);
    while (rank + 1 < count_ && begins_[rank + 1] <= start) ++rank;
    below_[piece] = rank;
  }
  below_.back() = static_cast<std::uint32_t>(count_ - 1);
}

}  // namespace windlass::image
