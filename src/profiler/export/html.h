// One self-contained HTML page with an interactive flame graph (d3-flame-graph embedded).
#pragma once

#include <cstddef>
#include <optional>

#include "base/text_writer.h"
#include "profiler/profile/profile.h"
#include "windlass/error.h"

namespace windlass::exporter {

struct HtmlOptions {
  std::optional<profile::ValueType> first{};  // what is shown until the reader chooses; shown_by_default()
  // A graph has at most this many boxes; the smallest are folded into their parents, and the page says how many. The
  // callers' graph has half as many, those of the single processes together as many.
  std::size_t max_nodes = 100'000;
};

// kUnsupported if this build was made without the page's scripts (npm out of reach at build time).
[[nodiscard]] Expected<void> write_html(const profile::Profile& profile, TextWriter& out,
                                        const HtmlOptions& options = {});
[[nodiscard]] bool html_available();

}  // namespace windlass::exporter
