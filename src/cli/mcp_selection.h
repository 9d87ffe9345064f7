// The arguments that choose samples, of the tools of the Model Context Protocol.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/mcp_tools.h"
#include "cli/say.h"
#include "profiler/profile/profile.h"

namespace windlass::cli {

// A profile as the arguments choose it.
struct McpChosen {
  std::string file;
  profile::Profile profile;
  profile::ValueType value;
};

// Of the profile `file`. Nothing: `problem` says why.
[[nodiscard]] std::optional<McpChosen> choose_samples(McpContext& context, const Json& arguments, std::string file,
                                                      std::string& problem);
// Also cuts the stacks at the function, as --callers-of or --callees-of does.
[[nodiscard]] std::optional<McpChosen> choose_callers(McpContext& context, const Json& arguments, std::string& problem);
[[nodiscard]] std::optional<McpChosen> choose_callees(McpContext& context, const Json& arguments, std::string& problem);

// While it lives, say() goes to a text.
class SaidInto {
 public:
  explicit SaidInto(std::string& text) { messages_to = &text; }
  ~SaidInto() { messages_to = nullptr; }
  SaidInto(const SaidInto&) = delete;
  SaidInto& operator=(const SaidInto&) = delete;
};

// The same choice as options of `report`.
[[nodiscard]] std::vector<std::string> selection_options(const Json& arguments);

[[nodiscard]] std::string text_argument(const Json& arguments, const char* name);

// Messages of the command as a problem: without "windlass: ", and without the last end of line. The way out names an
// argument or a tool where the message names an option.
[[nodiscard]] std::string problem_of(std::string said);

}  // namespace windlass::cli
