// What a client may give a tool, as a schema and as a check.
#include <algorithm>

#include <fmt/format.h>

#include "cli/mcp_tools.h"

namespace windlass::cli {
namespace {

Json schema_of(const McpArgument& argument) {
  Json schema;
  switch (argument.kind) {
    case ArgumentKind::kText:
      schema = {{"type", "string"}};
      if (argument.required) schema["minLength"] = 1;
      break;
    case ArgumentKind::kTexts: schema = {{"type", "array"}, {"items", {{"type", "string"}, {"minLength", 1}}}}; break;
    case ArgumentKind::kNumber:
      schema = {{"type", "integer"}};
      schema["minimum"] = static_cast<std::uint64_t>(argument.least);
      schema["maximum"] = static_cast<std::uint64_t>(argument.most);
      break;
    case ArgumentKind::kSeconds:
      schema = {{"type", "number"}};
      schema["minimum"] = argument.least;
      schema["maximum"] = argument.most;
      break;
    case ArgumentKind::kFlag: schema = {{"type", "boolean"}}; break;
  }
  schema["description"] = argument.help;
  if (!argument.words.empty()) schema["enum"] = argument.words;
  if (!argument.default_value.is_null()) schema["default"] = argument.default_value;
  return schema;
}

const std::string& text_of(const Json& value) { return value.get_ref<const std::string&>(); }

// Words of a command line and names of files end there.
bool has_nul(const Json& value) {
  if (value.is_array()) return std::ranges::any_of(value, has_nul);
  return value.is_string() && text_of(value).find('\0') != std::string::npos;
}

bool fits(const McpArgument& argument, const Json& value) {
  switch (argument.kind) {
    case ArgumentKind::kText:
      if (!value.is_string() || (argument.required && text_of(value).empty())) return false;
      return argument.words.empty() || std::ranges::find(argument.words, text_of(value)) != argument.words.end();
    case ArgumentKind::kTexts:
      return value.is_array() &&
             std::ranges::all_of(value, [](const Json& one) { return one.is_string() && !text_of(one).empty(); });
    case ArgumentKind::kNumber:
      if (!value.is_number_integer()) return false;
      break;
    case ArgumentKind::kSeconds:
      if (!value.is_number()) return false;
      break;
    case ArgumentKind::kFlag: return value.is_boolean();
  }
  return value.get<double>() >= argument.least && value.get<double>() <= argument.most;
}

}  // namespace

Json description_of(const McpTool& tool) {
  Json properties = Json::object(), required = Json::array();
  for (const McpArgument& argument : tool.arguments) {
    properties[argument.name] = schema_of(argument);
    if (argument.required) required.push_back(argument.name);
  }
  Json input = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (!required.empty()) input["required"] = required;
  return {{"name", tool.name},
          {"description", tool.help},
          {"inputSchema", input},
          {"outputSchema", tool.output_schema},
          {"annotations", {{"readOnlyHint", !tool.records}, {"destructiveHint", false}, {"openWorldHint", false}}}};
}

std::string complete_arguments(const McpTool& tool, Json& arguments) {
  for (const auto& [name, value] : arguments.items()) {
    const auto known = std::ranges::find(tool.arguments, name, &McpArgument::name);
    if (known == tool.arguments.end()) return fmt::format("{} has no argument {}", tool.name, name);
    if (!fits(*known, value))
      return fmt::format("the argument {} of {} is not as its schema says: {}", name, tool.name,
                         schema_of(*known).dump());
    if (has_nul(value)) return fmt::format("the argument {} of {} has a NUL character in it", name, tool.name);
  }
  for (const McpArgument& argument : tool.arguments) {
    if (argument.required && !arguments.contains(argument.name))
      return fmt::format("{} needs the argument {}", tool.name, argument.name);
    // An empty text chooses nothing, and an option `--x=` would take the next word.
    if (const auto given = arguments.find(argument.name);
        given != arguments.end() && given->is_string() && text_of(*given).empty())
      arguments.erase(given);
    if (!argument.default_value.is_null() && !arguments.contains(argument.name))
      arguments[argument.name] = argument.default_value;
  }
  return {};
}

}  // namespace windlass::cli
