// Lists of numbers and of texts in a column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/leb128.h"

namespace windlass::store {

// Takes a number from the front. False: there is none.
inline bool take_number(std::string_view& bytes, std::uint64_t& number) {
  number = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    number |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Those before the first damaged one.
inline std::vector<std::uint64_t> numbers_in(std::string_view bytes) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = 0; take_number(bytes, number);) numbers.push_back(number);
  return numbers;
}

inline std::string bytes_of_texts(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    put_uleb128(bytes, text.size());
    bytes += text;
  }
  return bytes;
}

inline std::vector<std::string> texts_in(std::string_view bytes) {
  std::vector<std::string> texts;
  for (std::uint64_t size = 0; take_number(bytes, size) && size <= bytes.size(); bytes.remove_prefix(size))
    texts.emplace_back(bytes.substr(0, size));
  return texts;
}

}  // namespace windlass::store
