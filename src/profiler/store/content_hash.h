// 128 bits that stand for contents, so that equal ones are kept once. The chance that two of a billion agree is 10^-21.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace windlass::store {

using HashBytes = std::array<std::byte, 16>;

// The same on every machine: files and servers keep it.
class ContentHash {
 public:
  ContentHash& add(std::uint64_t number);
  ContentHash& add(std::string_view text);
  ContentHash& add(const HashBytes& hash);
  [[nodiscard]] HashBytes bytes() const;

 private:
  std::uint64_t low_ = 0x243f6a8885a308d3, high_ = 0x13198a2e03707344;  // digits of pi
};

}  // namespace windlass::store
