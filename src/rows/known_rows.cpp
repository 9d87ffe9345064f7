#include "rows/known_rows.h"

#include <algorithm>
#include <bit>

namespace windlass {
namespace {

std::uint64_t hash_of(const FrameRow& row) {
  constexpr std::uint64_t kFactor = 0x9e37'79b9'7f4a'7c15;
  std::uint64_t hash =
      std::bit_cast<std::uint64_t>(row.return_address) + (row.signal_frame ? 1 : 0) + (row.return_signed ? 2 : 0);
  for (const RegisterEntry entry : row.registers)
    hash = (hash ^ std::bit_cast<std::uint64_t>(entry.rule) ^ entry.reg) * kFactor;
  return hash ^ hash >> 32;
}

bool say_the_same(const FrameRow& one, const FrameRow& other) {
  return one.return_address == other.return_address && one.signal_frame == other.signal_frame &&
         one.return_signed == other.return_signed &&
         std::ranges::equal(one.registers.numbers(), other.registers.numbers()) &&
         std::ranges::equal(one.registers.rules(), other.registers.rules());
}

}  // namespace

std::uint32_t KnownRows::number_of(const FrameRow& row) {
  if (slots_.empty()) {
    slots_.resize(kSlots);
    rows_.reserve(kMost);
  }
  std::size_t slot = hash_of(row) % kSlots;
  for (; slots_[slot] != 0; slot = (slot + 1) % kSlots) {
    const std::uint32_t index = slots_[slot] - 1U;
    if (say_the_same(rows_[index], row)) return first_ + index;
  }
  if (full()) return 0;
  rows_.push_back(row);
  slots_[slot] = static_cast<std::uint16_t>(rows_.size());
  return first_ + static_cast<std::uint32_t>(rows_.size()) - 1;
}

void KnownRows::clear() {
  first_ += static_cast<std::uint32_t>(rows_.size());
  if (first_ > ~std::uint32_t{kMost}) first_ = 1;
  rows_.clear();
  std::ranges::fill(slots_, std::uint16_t{0});
}

}  // namespace windlass
