// The answers of `windlass serve` to its page and to scripts: docs/reference/serve.md.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/child_answer.h"

namespace windlass::cli {

struct ServedStore {
  std::string path;  // of a store
  std::string name;  // for people
  bool is_own;       // `path` is one that the command line names: as FILE@RANGE other commands read it
};

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
