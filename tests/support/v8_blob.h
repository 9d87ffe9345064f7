// V8's embedded builtins in an image without symbols: the table of their offsets and lengths that the blob's data has
// (LayoutDescription, src/snapshot/embedded/embedded-data.h of V8), found by its form.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "windlass/bytes.h"

namespace windlass::test {

struct Builtin {
  std::uint32_t offset;  // in the blob's code
  std::uint32_t length;
};

// Each begins at the first multiple of 64 behind the end of the one before it, so a thousand in a row are no accident.
// Empty: there is none. Versions differ in how far the descriptions are apart.
inline std::vector<Builtin> find_builtins(ByteView data) {
  constexpr std::size_t kLeast = 1000, kMostWords = 8;
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, data.data() + at, sizeof value);
    return value;
  };
  const auto next_fits = [&](std::size_t at, std::size_t step) {
    const std::uint64_t offset = word(at), length = word(at + 4);
    return length != 0 && length < 1 << 20 && word(at + step) == (offset + length) / 64 * 64 + 64;
  };
  for (std::size_t words = 2; words <= kMostWords; ++words) {
    const std::size_t step = words * 4;
    for (std::size_t begin = 0; begin + step + 8 <= data.size(); begin += 4) {
      if (word(begin) != 0 || !next_fits(begin, step)) continue;
      std::vector<Builtin> found;
      std::size_t at = begin;
      for (; at + step + 8 <= data.size() && next_fits(at, step); at += step) found.push_back({word(at), word(at + 4)});
      found.push_back({word(at), word(at + 4)});
      if (found.size() >= kLeast) return found;
    }
  }
  return {};
}

}  // namespace windlass::test
