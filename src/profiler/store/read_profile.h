// What a store has of a range, as one profile: for every exporter, report and page.
#pragma once

#include "profiler/store/store.h"

namespace windlass::store {

// Events that differ in the period alone become one, without a period. The profile has no times: a store keeps only
// the interval of a sample. A sample without a label "host" gets the interval's.
[[nodiscard]] Expected<profile::Profile> read_profile(ProfileStore& store, const Filter& filter, std::uint64_t from,
                                                      std::uint64_t to);

}  // namespace windlass::store
