// One self-contained HTML page with an interactive flame graph, which makes no request unless it is served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

struct HtmlOptions {
  std::optional<profile::ValueType> first{};  // what is shown until the reader chooses; shown_by_default()
  std::string file{};                         // as the reader would name the profile on a command line
  // The page's address answers ".../annotate?function=NAME&value=NAME" with report --annotate --json. The page may ask
  // its own server for that.
  bool served = false;
  // The page is of a recording, or of a file that may be written again: its address has newer data, until `running` is
  // false.
  struct Live {
    std::uint64_t version;  // as of the ETag of the page's address
    bool running;
    bool file = false;
  };
  std::optional<Live> live{};
};

[[nodiscard]] Expected<void> write_html(const profile::Profile& profile, TextWriter& out,
                                        const HtmlOptions& options = {});

}  // namespace windlass::exporter
