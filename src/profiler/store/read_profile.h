// What a store has of a range, as one profile: for every exporter, report and page.
#pragma once

#include <cstddef>

#include "profiler/store/store.h"

namespace windlass::store {

inline constexpr std::size_t kAllStacks = ~std::size_t{0};

// Events that differ in the period alone become one, without a period. The profile has no times: a store keeps only
// the interval of a sample. A sample without a label "host" gets the interval's.
//
// `most_stacks`: frames are read of the heaviest stacks alone, by their shares of the events' values. The samples of
// the others have one frame, "[stacks left out]", and keep their labels, so that every sum by labels stays true. A
// comment says how many they are.
[[nodiscard]] Expected<profile::Profile> read_profile(ProfileStore& store, const Filter& filter, std::uint64_t from,
                                                      std::uint64_t to, std::size_t most_stacks = kAllStacks);

}  // namespace windlass::store
