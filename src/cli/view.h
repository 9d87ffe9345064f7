// A profile as a page in the browser, for `view` and `record --open`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/profile/profile.h"

namespace windlass::cli {

struct ViewOptions {
  std::uint16_t port = 0;                     // 0: one that is free
  bool browser = true;                        // Open the browser, where there is one.
  std::optional<profile::ValueType> value{};  // What the page shows first.
  std::string file{};                         // As of HtmlOptions.
  std::vector<std::string> source_maps{};     // As of AnnotateArguments.
};

// Serves the page until Ctrl-C. `name`: the profile's, for people. Returns the exit status; says on stderr what failed.
[[nodiscard]] int view(const profile::Profile& profile, const std::string& name, const ViewOptions& options);

}  // namespace windlass::cli
