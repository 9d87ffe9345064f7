// The HTML page without a profile.
#pragma once

#include <string>

namespace windlass::exporter {

// page.html with its scripts. The profile takes the place of "@PROFILE@".
[[nodiscard]] std::string page_template();

}  // namespace windlass::exporter
