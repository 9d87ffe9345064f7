// The answers of `windlass serve` to its page and to scripts: docs/reference/serve.md.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/child_answer.h"
#include "cli/served_store.h"

namespace windlass::cli {

// Reads the store, in whichever process it is called.
struct ApiWork {
  std::function<WorkedOut()> work;
  std::string_view type;  // of the answer
};
struct ApiQuestion {
  std::optional<ApiWork> work{};
  std::string_view status{};  // else: HTTP's
  std::string problem{};      // and why there is none
};
// `kind`: what stands behind "/api/". `query`: as it came.
[[nodiscard]] ApiQuestion api_question(const ServedStore& store, std::string_view kind, std::string_view query);

// {"error":"..."}
[[nodiscard]] std::string api_error(std::string_view text);

}  // namespace windlass::cli
