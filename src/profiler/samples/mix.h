// A hash of one more word.
#pragma once

#include <cstdint>

namespace windlass::profiler {

[[nodiscard]] inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdull;
}

}  // namespace windlass::profiler
