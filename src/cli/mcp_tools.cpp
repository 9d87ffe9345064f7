// The table of tools: names, arguments and schemas of the answers.
#include "cli/mcp_tools.h"

#include <initializer_list>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

using Members = std::initializer_list<std::pair<const char*, Json>>;

Json of_type(const char* type) { return {{"type", type}}; }
Json or_null(const char* type) { return {{"type", {type, "null"}}}; }
Json list_of(const Json& item) { return {{"type", "array"}, {"items", item}}; }

// An object that has all of these members and no other.
Json object_of(Members members) {
  Json properties = Json::object(), required = Json::array();
  for (const auto& [name, schema] : members) {
    properties[name] = schema;
    required.push_back(name);
  }
  return {{"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}};
}

// A line of the command's JSON, which has a schema of its own.
Json line_of(const char* command) {
  return {{"type", "object"}, {"description", fmt::format("as windlass {} prints it", command)}};
}

const Json& text_schema() {
  static const Json kSchema = of_type("string");
  return kSchema;
}
const Json& number_schema() {
  static const Json kSchema = of_type("integer");
  return kSchema;
}

// An answer about one profile.
Json about_profile(Members members) {
  Json schema = object_of({{"file", text_schema()},
                           {"value", text_schema()},
                           {"unit", text_schema()},
                           {"samples", {{"type", "integer"}, {"description", "the sum of the value over all samples"}}},
                           {"more", {{"type", "integer"}, {"description", "how many rows were left out"}}}});
  for (const auto& [name, member] : members) {
    schema["properties"][name] = member;
    schema["required"].push_back(name);
  }
  return schema;
}

Json summary_schema() {
  return object_of(
      {{"file", text_schema()},
       {"value", text_schema()},
       {"unit", text_schema()},
       {"samples", number_schema()},
       {"truncated", number_schema()},
       {"chained", number_schema()},
       {"lost", number_schema()},
       {"start_unix_ns", number_schema()},
       {"duration_ns", number_schema()},
       {"processes", number_schema()},
       {"functions", number_schema()},
       {"has_times", of_type("boolean")},
       {"values", list_of(object_of({{"name", text_schema()}, {"unit", text_schema()}, {"sum", number_schema()}}))},
       {"labels", list_of(text_schema())},
       {"comments", list_of(text_schema())},
       {"notes", list_of(text_schema())}});
}

Json frame_schema(Members more) {
  Json schema = object_of({{"function", text_schema()}, {"module", or_null("string")}});
  for (const auto& [name, member] : more) {
    schema["properties"][name] = member;
    schema["required"].push_back(name);
  }
  return schema;
}

Json relatives_schema(const char* which) {
  return about_profile({{"function", text_schema()},
                        {"total", number_schema()},
                        {which, list_of(frame_schema({{"total", number_schema()}, {"share", of_type("number")}}))}});
}

McpArgument number(const char* name, const char* help, double least, double most, double value) {
  return {name, ArgumentKind::kNumber, help, false, least, most, static_cast<std::uint64_t>(value)};
}
McpArgument flag(const char* name, const char* help) {
  return {.name = name, .kind = ArgumentKind::kFlag, .help = help, .default_value = false};
}
McpArgument text(const char* name, const char* help, bool required = false) {
  return {.name = name, .kind = ArgumentKind::kText, .help = help, .required = required};
}
McpArgument texts(const char* name, const char* help) {
  return {.name = name, .kind = ArgumentKind::kTexts, .help = help};
}
McpArgument seconds(const char* name, const char* help, double least, double most, Json value = nullptr) {
  return {name, ArgumentKind::kSeconds, help, false, least, most, std::move(value)};
}
McpArgument choice(const char* name, const char* help, std::vector<std::string> words) {
  McpArgument argument = text(name, help);
  argument.default_value = words.front();
  argument.words = std::move(words);
  return argument;
}

constexpr double kMostRows = 1000, kLongestTime = 1e9;

std::vector<McpArgument> with_selection(std::vector<McpArgument> arguments) {
  for (McpArgument& one : std::vector<McpArgument>{
           text("value", "what to sum: samples, cpu, or another value of the profile"),
           texts("process", "samples of these processes only, by id or name"),
           texts("thread", "samples of these threads only, by id or name"),
           texts("module", "samples with a frame in one of these files only"),
           texts("only", "samples with these labels only, each KEY=VALUE"),
           text("focus", "samples with a function whose name fits this regular expression only"),
           text("ignore", "no samples with a function whose name fits this regular expression"),
           seconds("from", "samples from this time on, in seconds since the start", 0, kLongestTime),
           seconds("to", "samples before this time, in seconds since the start", 0, kLongestTime)})
    arguments.push_back(std::move(one));
  return arguments;
}

McpArgument file_argument() { return text("file", "a profile; else the one that was opened last"); }
McpArgument limit_argument(const char* help, double value) { return number("limit", help, 1, kMostRows, value); }

std::vector<McpTool> profile_tools() {
  std::vector<McpTool> tools;
  tools.push_back({.name = "open_profile",
                   .help = "Reads a profile: pprof (.pb.gz), perf.data and others, or samples of a store of windlass "
                           "agent. Says what it has: values, labels, times, processes. Other tools then need no file",
                   .arguments = {text("file",
                                      "the path of the profile or store; times of a store stand behind @: s.db@-1h, "
                                      "s.db@2026-11-27T14:05..2026-11-27T14:10",
                                      true)},
                   .output_schema = summary_schema(),
                   .call = call_open_profile});
  tools.push_back(
      {.name = "top_functions",
       .help = "The functions with the largest sums: self of samples in them, total also of samples in their callees",
       .arguments = with_selection({file_argument(), choice("sort", "by which sum", {"self", "total"}),
                                    limit_argument("functions at most", 20)}),
       .output_schema = about_profile({{"functions", list_of(frame_schema({{"file", or_null("string")},
                                                                           {"line", or_null("integer")},
                                                                           {"self", number_schema()},
                                                                           {"total", number_schema()},
                                                                           {"self_share", of_type("number")},
                                                                           {"total_share", of_type("number")}}))}}),
       .call = call_top_functions,
       .computes = true});
  const auto relatives = [&](const char* name, const char* help, auto* call) {
    tools.push_back(
        {.name = name,
         .help = help,
         .arguments = with_selection({file_argument(), text("function", "its name, with or without parameters", true),
                                      limit_argument("rows at most", 20)}),
         .output_schema = relatives_schema(name),
         .call = call,
         .computes = true});
  };
  relatives("callers", "The functions that call a function, with the sums of the samples that came by them",
            call_callers);
  relatives("callees", "The functions that a function calls, with the sums of the samples in them", call_callees);
  McpArgument share = number("least_share", "leaves out what has a smaller share of all samples", 0, 1, 0);
  share.kind = ArgumentKind::kSeconds;
  share.default_value = 0.01;
  tools.push_back({.name = "call_tree",
                   .help =
                       "The heaviest paths of the call tree, callers first. A node's parent is the last node before "
                       "it whose depth is smaller by 1",
                   .arguments = with_selection({file_argument(), limit_argument("nodes at most", 100), share}),
                   .output_schema = about_profile({{"nodes", list_of(frame_schema({{"depth", number_schema()},
                                                                                   {"self", number_schema()},
                                                                                   {"total", number_schema()},
                                                                                   {"share", of_type("number")}}))}}),
                   .call = call_call_tree,
                   .computes = true});
  tools.push_back({.name = "processes",
                   .help = "The processes that have samples",
                   .arguments = with_selection({file_argument(), limit_argument("processes at most", 50)}),
                   .output_schema = about_profile({{"processes", list_of(object_of({{"pid", number_schema()},
                                                                                    {"name", text_schema()},
                                                                                    {"sum", number_schema()},
                                                                                    {"share", of_type("number")}}))}}),
                   .call = call_processes,
                   .computes = true});
  tools.push_back(
      {.name = "diff",
       .help = "Compares two profiles, function by function, and says which differences are more than noise",
       .arguments = with_selection({text("a", "the profile before", true), text("b", "the profile after", true),
                                    choice("normalise",
                                           "what makes the sums comparable: shares of all samples, "
                                           "a second of recording, or nothing",
                                           {"samples", "time", "none"}),
                                    limit_argument("functions at most", 20)}),
       .output_schema = object_of({{"diff", line_of("report --diff --json")},
                                   {"functions", list_of(line_of("report --diff --json"))},
                                   {"more", number_schema()}}),
       .call = call_diff,
       .computes = true});
  return tools;
}

std::vector<McpTool> child_tools(bool allow_record) {
  std::vector<McpTool> tools;
  Json code = line_of("report --annotate --json");
  code["properties"]["instructions"] = list_of(line_of("report --annotate --json"));
  tools.push_back(
      {.name = "annotate",
       .help = "The shares of a function's source lines and instructions. Opens the files that the profile names",
       .arguments = with_selection({file_argument(), text("function", "its name, or a part of one", true),
                                    limit_argument("source lines at most, and instructions of each code", 100)}),
       .output_schema = object_of({{"annotation", line_of("report --annotate --json")},
                                   {"source_lines", list_of(line_of("report --annotate --json"))},
                                   {"code", list_of(code)},
                                   {"more", number_schema()},
                                   {"notes", list_of(text_schema())}}),
       .call = call_annotate});
  McpArgument pid = number("pid", "the id of the process", 1, 2147483647, 0);
  pid.default_value = nullptr;
  pid.required = true;
  tools.push_back({.name = "walk",
                   .help = "The call stack of each thread of a live process, which is stopped for a moment",
                   .arguments = {pid, flag("lines", "files and lines, too"), flag("inlines", "inlined functions, too"),
                                 number("threads", "threads at most", 1, kMostRows, 20),
                                 number("frames", "innermost frames of a thread at most", 1, kMostRows, 64)},
                   .output_schema = object_of({{"pid", number_schema()},
                                               {"threads", list_of(line_of("walk --json"))},
                                               {"more", number_schema()},
                                               {"more_frames", number_schema()},
                                               {"notes", list_of(text_schema())}}),
                   .call = call_walk});
  if (!allow_record) return tools;
  pid.required = false;
  pid.help = "the id of the process; without one the whole machine is recorded";
  tools.push_back(
      {.name = "record",
       .help = "Records a process or the whole machine, into a new file of a temporary folder, and opens it",
       .arguments = {pid, seconds("duration", "in seconds", 0.1, 60, 5),
                     number("frequency", "samples of each CPU a second", 1, 10000, 99),
                     flag("off_cpu", "time that threads wait, too"), flag("timeline", "the time of each sample, too")},
       .output_schema = summary_schema(),
       .call = call_record,
       .records = true});
  return tools;
}

}  // namespace

std::vector<McpTool> mcp_tools(const McpContext& context) {
  std::vector<McpTool> tools = profile_tools();
  for (McpTool& tool : child_tools(context.allow_record)) tools.push_back(std::move(tool));
  return tools;
}

}  // namespace windlass::cli
