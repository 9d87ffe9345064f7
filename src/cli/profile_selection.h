// What of a profile a command shows: --value, --only, --by and the options of frames, of report and view.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/export/narrow.h"
#include "profiler/profile/profile.h"

namespace CLI {
class App;
}

namespace windlass::cli {

struct ProfileSelection {
  std::string value;              // empty: shown_by_default()
  std::vector<std::string> only;  // KEY=VALUE
  std::string by;                 // empty: by the thread's name
  // In ns since the recording's start.
  std::optional<std::uint64_t> from, to;
  exporter::Narrowing narrowing;
};

void add_selection_options(CLI::App& command, ProfileSelection& to);

// False: says on stderr that no sample has such a label.
[[nodiscard]] bool has_label(const profile::Profile& profile, std::string_view subject, const std::string& key);

// Narrows and groups the profile. Returns the value to show. Nothing: says why on stderr; `subject` is the profile's
// name.
[[nodiscard]] std::optional<profile::ValueType> select_from(profile::Profile& profile, std::string_view subject,
                                                            const ProfileSelection& selection);

}  // namespace windlass::cli
