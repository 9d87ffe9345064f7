// Rows that are kept from function to function are the rows that each function alone has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "windlass/frame_row.h"

namespace windlass::test {

// All but the addresses and the CFA.
inline bool say_the_same(const FrameRow& one, const FrameRow& other) {
  return one.return_address == other.return_address && one.signal_frame == other.signal_frame &&
         one.return_signed == other.return_signed &&
         std::ranges::equal(one.registers.numbers(), other.registers.numbers()) &&
         std::ranges::equal(one.registers.rules(), other.registers.rules());
}
inline bool is_same(const FrameRow& one, const FrameRow& other) {
  return one.begin == other.begin && one.end == other.end && one.cfa == other.cfa && say_the_same(one, other);
}
inline bool are_same(const std::vector<FrameRow>& some, const std::vector<FrameRow>& others) {
  return std::ranges::equal(some, others, is_same);
}

// Do rows with the same number say the same?
class RowNumbers {
 public:
  [[nodiscard]] bool fits(const FrameRow& row, std::uint32_t number) {
    if (number == 0) return true;
    return say_the_same(first_.try_emplace(number, row).first->second, row);
  }
  [[nodiscard]] std::size_t size() const { return first_.size(); }

 private:
  std::map<std::uint32_t, FrameRow> first_;
};

}  // namespace windlass::test
