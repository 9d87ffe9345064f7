// One self-contained HTML page with an interactive flame graph, which makes no request.
#pragma once

#include <optional>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

struct HtmlOptions {
  std::optional<profile::ValueType> first{};  // what is shown until the reader chooses; shown_by_default()
};

[[nodiscard]] Expected<void> write_html(const profile::Profile& profile, TextWriter& out,
                                        const HtmlOptions& options = {});

}  // namespace windlass::exporter
