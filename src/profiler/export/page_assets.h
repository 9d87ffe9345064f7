// The HTML page without a profile.
#pragma once

#include <string>

namespace windlass::exporter {

// page.html with its scripts. The profile takes the place of "@PROFILE@".
[[nodiscard]] std::string page_template();

// The page of `windlass serve`, which has no inline script: "page.js" and "store.js" beside it are loaded.
struct StorePage {
  std::string html, page_script, store_script;
};
[[nodiscard]] StorePage store_page();

}  // namespace windlass::exporter
