// The profile that a command shows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::cli {

// As messages name the profile: "standard input" for "-".
[[nodiscard]] std::string shown_profile(const std::string& file);

// Reads a profile of any format that profiler/import knows, or a store's samples: FILE@RANGE (cli/store_range.h). Names
// what its addresses are. Files that could not be read are said on stderr. If the profile itself cannot be read: says
// why there, or which command reads such a file, and sets `status`. `only`: KEY=VALUE, labels that samples must have.
// Those that the file's reader has seen to are taken out: host and process of a store.
[[nodiscard]] std::optional<profile::Profile> read_profile(const std::string& file, std::string_view command,
                                                           int& status, std::vector<std::string>& only);

// All of its samples.
[[nodiscard]] inline std::optional<profile::Profile> read_profile(const std::string& file, std::string_view command,
                                                                  int& status) {
  std::vector<std::string> all;
  return read_profile(file, command, status, all);
}

// "a, b, c", and how many more.
[[nodiscard]] std::string some_of(const std::vector<std::string>& names);

// Says that no sample has this value of the label, and which values samples have.
void say_no_such_value(std::string_view subject, std::string_view key, std::string_view value,
                       const std::vector<std::string>& values);

// Says why a profile cannot be read or written. Returns the exit status.
[[nodiscard]] int unreadable_profile(const std::string& file, std::string_view command, const Error& error);

}  // namespace windlass::cli
