// Tools of the Model Context Protocol: what `windlass mcp` lists and calls.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/mcp_child.h"
#include "profiler/profile/profile.h"

namespace windlass::cli {

using Json = nlohmann::ordered_json;

// An answer, or the reason why there is none.
struct McpResult {
  Json value{};
  std::string problem{};
};

// The profiles that are open. Not thread-safe.
class OpenProfiles {
 public:
  static constexpr std::size_t kMost = 8;

  // Reads the file in a process of its own, again if it is open. Null: `problem` says why.
  [[nodiscard]] const profile::Profile* open(const std::string& file, std::string& problem, const ChildWatch& watch);
  // The profile of an open file, or else of a file that is opened. An empty name: the one that was opened last; `file`
  // becomes its name.
  [[nodiscard]] const profile::Profile* find(std::string& file, std::string& problem, const ChildWatch& watch);

 private:
  std::list<std::pair<std::string, profile::Profile>> profiles_;  // the one opened last comes first
};

struct McpContext {
  OpenProfiles profiles{};
  bool allow_record = false;
  std::string folder{};  // of recordings; empty: not made yet
  std::uint64_t recordings = 0;
  ChildWatch watch{};  // of the request that is answered
  ChildWatch
      open_watch{};  // of a file that is opened: goes on if the client closes its end, as `... | windlass mcp` does
};

enum class ArgumentKind : std::uint8_t { kText, kTexts, kNumber, kSeconds, kFlag };

struct McpArgument {
  std::string name;
  ArgumentKind kind;
  std::string help;
  bool required = false;
  double least = 0, most = 0;  // of numbers
  Json default_value = nullptr;
  std::vector<std::string> words{};  // of a text that must be one of them
};

struct McpTool {
  std::string name, help;
  std::vector<McpArgument> arguments;
  Json output_schema;
  McpResult (*call)(McpContext& context, const Json& arguments);
  bool records = false;
  bool computes = false;  // from open profiles alone: call_apart() calls it
};

// Those of the context: `record` only if it is allowed.
[[nodiscard]] std::vector<McpTool> mcp_tools(const McpContext& context);

// As tools/list has the tool.
[[nodiscard]] Json description_of(const McpTool& tool);

// Checks the arguments against the tool's, and gives those that are left out their default. A problem: what is wrong.
[[nodiscard]] std::string complete_arguments(const McpTool& tool, Json& arguments);

// The calls. Their arguments are complete.
[[nodiscard]] McpResult call_open_profile(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_top_functions(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_callers(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_callees(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_call_tree(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_processes(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_diff(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_annotate(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_walk(McpContext& context, const Json& arguments);
[[nodiscard]] McpResult call_record(McpContext& context, const Json& arguments);

// Calls a tool that computes in a process of its own, once the profiles are open: large profiles take long, and so do
// some regular expressions on long names.
[[nodiscard]] McpResult call_apart(McpContext& context, const McpTool& tool, const Json& arguments);

// What open_profile and record answer.
[[nodiscard]] Json summary_of(const std::string& file, const profile::Profile& profile);

// JSON texts, one a line, as `--json` prints them.
[[nodiscard]] std::vector<Json> parse_lines(const std::string& text);

}  // namespace windlass::cli
