// The files the HTML page is made of, embedded in the binary.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace windlass::exporter {

[[nodiscard]] std::string_view page_template();  // page.html
[[nodiscard]] std::string_view page_script();    // page.js
// d3 and d3-flame-graph as they came from npm; empty if this build could not fetch them.
[[nodiscard]] std::span<const std::string> web_scripts();

}  // namespace windlass::exporter
