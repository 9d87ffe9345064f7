// A batch as every store keeps it: samples added up per label set and stack, and only what they use.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/store/store.h"

namespace windlass::store {

struct BatchRow {
  std::uint32_t event = 0;   // an index into the profile's events
  std::uint32_t labels = 0;  // an index into BatchRows::label_sets
  std::uint32_t stack = 0;   // an index into BatchRows::stacks
  std::uint8_t end = 0, certainty = 0;
  Sums sums;
};

struct BatchRows {
  std::vector<LabelSet> label_sets;
  std::vector<std::vector<std::uint32_t>> stacks;  // of the profile's locations, innermost first
  std::vector<BatchRow> rows;                      // no two agree in all but the sums
};

// An error if sums have more than 64 bits, or if an index of the profile leads nowhere.
[[nodiscard]] Expected<BatchRows> rows_of(const Batch& batch);

// False: the sum has more than 64 bits.
[[nodiscard]] inline bool add_to(Sums& to, const Sums& more) {
  return !__builtin_add_overflow(to.count, more.count, &to.count) &&
         !__builtin_add_overflow(to.value, more.value, &to.value);
}
inline constexpr const char* kTooLargeSums = "values of the samples add up to more than 64 bits";

}  // namespace windlass::store
