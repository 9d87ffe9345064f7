// Values in the memory of another process, which may change or vanish while it is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "windlass/walk.h"

namespace windlass::runtimes {

template <typename T>
[[nodiscard]] std::optional<T> read_value(const Memory& memory, std::uint64_t address) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  if (!memory.read(address, &value, sizeof value)) return std::nullopt;
  return value;
}

// Up to a zero, at most `longest` bytes; empty where nothing can be read.
[[nodiscard]] inline std::string read_text(const Memory& memory, std::uint64_t address, std::size_t longest) {
  constexpr std::size_t kPiece = 64;  // aligned pieces, so that none reaches into a page that is not there
  std::string text;
  while (text.size() < longest) {
    char piece[kPiece];
    const std::size_t size = kPiece - (address + text.size()) % kPiece;
    if (!memory.read(address + text.size(), piece, size)) break;
    for (std::size_t i = 0; i < size; ++i) {
      if (piece[i] == 0 || text.size() == longest) return text;
      text += piece[i];
    }
  }
  return text;
}

}  // namespace windlass::runtimes
