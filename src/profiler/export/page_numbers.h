// Numbers as the script of the HTML page reads them.
#pragma once

#include <cstdint>
#include <string>

namespace windlass::exporter {

// LEB128, as DWARF has it: seven bits a byte, the lowest first.
inline void put_number(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

}  // namespace windlass::exporter
