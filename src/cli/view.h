// A profile as a page in the browser, for `view` and `record --open`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/page_server.h"
#include "profiler/profile/profile.h"

namespace windlass::cli {

struct ViewOptions {
  std::uint16_t port = 0;                     // 0: one that is free
  bool browser = true;                        // Open the browser, where there is one.
  std::optional<profile::ValueType> value{};  // What the page shows first.
  std::string file{};                         // As of HtmlOptions.
  std::vector<std::string> source_maps{};     // As of AnnotateArguments.
};

// A file that is shown, and may be written again.
struct WatchedFile {
  int news = -1;  // readable: the file may have changed
  // Reads it if it has changed. Returns true if there is another profile, and the value that its page shows first.
  // Makes `news` unreadable.
  std::function<bool(profile::Profile& profile, std::optional<profile::ValueType>& value)> take;
};

// Where a page is served already, which this profile follows.
struct ServedBefore {
  const PageServer& server;
  std::uint64_t version;  // of the next page
};

// Serves the page until Ctrl-C. `name`: the profile's, for people. `file`: null if the page stays. Returns the exit
// status; says on stderr what failed.
[[nodiscard]] int view(profile::Profile profile, const std::string& name, ViewOptions options,
                       const std::optional<ServedBefore>& before = std::nullopt, const WatchedFile* file = nullptr);

// Says where the page of a recording is that goes on.
void say_live_address(const PageServer& server);
// The user's own browser, if there is one here. False: none is started.
bool open_browser(const std::string& address);

}  // namespace windlass::cli
