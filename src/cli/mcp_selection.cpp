#include "cli/mcp_selection.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/profile_selection.h"
#include "cli/say.h"
#include "profiler/export/narrow.h"
#include "profiler/export/values.h"

namespace windlass::cli {
namespace {

std::vector<std::string> texts_argument(const Json& arguments, const char* name) {
  return arguments.contains(name) ? arguments.at(name).get<std::vector<std::string>>() : std::vector<std::string>();
}

std::optional<std::uint64_t> time_argument(const Json& arguments, const char* name) {
  if (!arguments.contains(name)) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(arguments.at(name).get<double>() * 1e9));
}

std::optional<McpChosen> choose(McpContext& context, const Json& arguments, std::string file,
                                exporter::Narrowing narrowing, std::string& problem) {
  const profile::Profile* found = context.profiles.find(file, problem, context.open_watch);
  if (found == nullptr) return std::nullopt;
  ProfileSelection selection;
  selection.value = text_argument(arguments, "value");
  selection.only = texts_argument(arguments, "only");
  selection.from = time_argument(arguments, "from");
  selection.to = time_argument(arguments, "to");
  selection.narrowing = std::move(narrowing);
  selection.narrowing.processes = texts_argument(arguments, "process");
  selection.narrowing.threads = texts_argument(arguments, "thread");
  selection.narrowing.modules = texts_argument(arguments, "module");
  selection.narrowing.focus = text_argument(arguments, "focus");
  selection.narrowing.ignore = text_argument(arguments, "ignore");
  for (const std::string& only : selection.only)
    if (only.find('=') == only.npos) {
      problem = "no KEY=VALUE: " + only;
      return std::nullopt;
    }
  McpChosen chosen{.file = file, .profile = *found, .value = {}};
  std::string text;
  const SaidInto into(text);
  const auto value = select_from(chosen.profile, chosen.file, selection);
  if (!value) {
    problem = problem_of(text);
    return std::nullopt;
  }
  chosen.value = *value;
  return chosen;
}

}  // namespace

std::string text_argument(const Json& arguments, const char* name) {
  return arguments.contains(name) ? arguments.at(name).get<std::string>() : std::string();
}

std::string problem_of(std::string said) {
  constexpr std::string_view kBegin = "windlass: ", kWayOut = ". Way out: ";
  constexpr std::pair<std::string_view, std::string_view> kTools[] = {{"--functions 100", "top_functions"},
                                                                      {"--json", "top_functions"}};
  while (said.ends_with('\n')) said.pop_back();
  if (said.starts_with(kBegin)) said.erase(0, kBegin.size());
  const std::size_t way_out = said.find(kWayOut);
  if (way_out == std::string::npos) return said;
  const std::size_t begin = way_out + kWayOut.size();
  for (const auto& [option, tool] : kTools)
    if (said.compare(begin, option.size(), option) == 0) return said.replace(begin, option.size(), tool);
  if (said.compare(begin, 2, "--") == 0) said.erase(begin, 2);
  return said;
}

std::optional<McpChosen> choose_samples(McpContext& context, const Json& arguments, std::string file,
                                        std::string& problem) {
  return choose(context, arguments, std::move(file), {}, problem);
}

std::optional<McpChosen> choose_callers(McpContext& context, const Json& arguments, std::string& problem) {
  return choose(context, arguments, text_argument(arguments, "file"),
                {.callers_of = text_argument(arguments, "function")}, problem);
}

std::optional<McpChosen> choose_callees(McpContext& context, const Json& arguments, std::string& problem) {
  return choose(context, arguments, text_argument(arguments, "file"),
                {.callees_of = text_argument(arguments, "function")}, problem);
}

std::vector<std::string> selection_options(const Json& arguments) {
  std::vector<std::string> options;
  for (const char* name : {"value", "focus", "ignore"})
    if (arguments.contains(name)) options.push_back(fmt::format("--{}={}", name, text_argument(arguments, name)));
  for (const char* name : {"process", "thread", "module", "only"})
    for (const std::string& one : texts_argument(arguments, name)) options.push_back(fmt::format("--{}={}", name, one));
  for (const char* name : {"from", "to"})
    if (const auto time = time_argument(arguments, name))
      options.push_back(*time == 0 ? fmt::format("--{}=0", name)
                                   : fmt::format("--{}={}.{:09}s", name, *time / 1'000'000'000, *time % 1'000'000'000));
  return options;
}

}  // namespace windlass::cli
