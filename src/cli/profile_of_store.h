// The samples of a store as one profile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/store_range.h"
#include "profiler/profile/profile.h"

namespace windlass::cli {

// Those in the range of times, named. `only` as for read_profile(). Nothing: says why on stderr, and sets `status`.
[[nodiscard]] std::optional<profile::Profile> read_store(const StoreFile& file, std::vector<std::string>& only,
                                                         int& status);

}  // namespace windlass::cli
