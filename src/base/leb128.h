// Unsigned LEB128: seven bits a byte, the lowest first (DWARF 5 section 7.6).
#pragma once

#include <cstdint>
#include <ranges>

namespace windlass {

// Appends to a string, or to a vector of bytes.
template <typename Bytes>
void put_uleb128(Bytes& to, std::uint64_t value) {
  using Byte = std::ranges::range_value_t<Bytes>;
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<Byte>((value & 0x7f) | 0x80));
  to.push_back(static_cast<Byte>(value));
}

}  // namespace windlass
