// What a store has of a range, as one profile: for every exporter, report and page.
#pragma once

#include "profiler/store/store.h"

namespace windlass::store {

// Events that differ in the period alone become one, without a period. The profile has no times: a store keeps only
// the interval of a sample. `with_hosts`: samples get the label "host", unless they have one of their own.
[[nodiscard]] Expected<profile::Profile> read_profile(ProfileStore& store, const Filter& filter, std::uint64_t from,
                                                      std::uint64_t to, bool with_hosts = false);

}  // namespace windlass::store
