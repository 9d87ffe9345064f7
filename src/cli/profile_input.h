// The profile that a command shows.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::cli {

// As messages name the profile: "standard input" for "-".
[[nodiscard]] std::string shown_profile(const std::string& file);

// Reads a profile of any format that profiler/import knows, or a store's samples: FILE@RANGE (cli/store_range.h). Names
// what its addresses are. Files that could not be read are said on stderr. If the profile itself cannot be read: says
// why there, or which command reads such a file, and sets `status`.
[[nodiscard]] std::optional<profile::Profile> read_profile(const std::string& file, std::string_view command,
                                                           int& status);

// Says why a profile cannot be read or written. Returns the exit status.
[[nodiscard]] int unreadable_profile(const std::string& file, std::string_view command, const Error& error);

}  // namespace windlass::cli
