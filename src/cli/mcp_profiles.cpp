// Tools of the Model Context Protocol that answer from a profile.
#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text_writer.h"
#include "cli/mcp_selection.h"
#include "cli/mcp_tools.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/diff.h"
#include "profiler/export/frames.h"
#include "profiler/export/labels.h"
#include "profiler/export/processes.h"
#include "profiler/export/values.h"

namespace windlass::cli {
namespace {

using exporter::CallTree;
using exporter::Frames;
using exporter::TreeNode;

constexpr std::size_t kLongestName = 1000, kMostTexts = 100;

// Names are as long as whoever made the profile wants them.
std::string bounded(std::string_view text) {
  return text.size() <= kLongestName ? std::string(text) : std::string(text.substr(0, kLongestName)) + "...";
}

double rounded_share(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : std::round(1e6 * static_cast<double>(part) / static_cast<double>(all)) / 1e6;
}

Json list_of_texts(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(texts.size(), kMostTexts); ++i) list.push_back(bounded(texts[i]));
  return list;
}

// A chosen profile and its call tree.
struct McpTree {
  explicit McpTree(const McpChosen& chosen)
      : profile(chosen.profile),
        frames(chosen.profile),
        tree(chosen.profile, frames, chosen.value),
        samples(tree.nodes().front().total) {}

  [[nodiscard]] bool is_function(const TreeNode& node) const {
    if (node.frame == profile::kNone) return false;
    const exporter::FrameKind kind = frames[node.frame].kind;
    return kind == exporter::FrameKind::kFunction || kind == exporter::FrameKind::kUnnamed;
  }
  [[nodiscard]] Json frame(std::uint32_t id) const {
    const std::string module = module_text(profile, frames[id]);
    return {{"function", bounded(frames[id].name)}, {"module", module.empty() ? Json(nullptr) : Json(bounded(module))}};
  }

  const profile::Profile& profile;
  Frames frames;
  CallTree tree;
  std::uint64_t samples;
};

Json head_of(const McpChosen& chosen, std::uint64_t samples, std::size_t more) {
  return {{"file", chosen.file},
          {"value", name_of(chosen.profile, chosen.value)},
          {"unit", unit_of(chosen.profile, chosen.value)},
          {"samples", samples},
          {"more", more}};
}

std::size_t limit_of(const Json& arguments) { return arguments.at("limit").get<std::size_t>(); }

std::optional<McpChosen> choose_file(McpContext& context, const Json& arguments, McpResult& result) {
  return choose_samples(context, arguments, text_argument(arguments, "file"), result.problem);
}

// The heaviest rows of sums by frame.
McpResult relatives(const McpChosen& chosen, const McpTree& tree, const Json& arguments, const char* which,
                    const std::map<std::uint32_t, std::uint64_t>& sums, std::uint64_t total) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> rows;
  for (const auto& [frame, sum] : sums) rows.emplace_back(sum, frame);
  std::ranges::sort(
      rows, [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  const std::size_t shown = std::min(rows.size(), limit_of(arguments));
  Json list = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    Json row = tree.frame(rows[i].second);
    row["total"] = rows[i].first;
    row["share"] = rounded_share(rows[i].first, total);
    list.push_back(std::move(row));
  }
  Json value = head_of(chosen, tree.samples, rows.size() - shown);
  value["function"] = text_argument(arguments, "function");
  value["total"] = total;
  value[which] = std::move(list);
  return {std::move(value)};
}

}  // namespace

Json summary_of(const std::string& file, const profile::Profile& profile) {
  const profile::ValueType shown = shown_by_default(profile);
  const exporter::Totals totals = exporter::totals_of(profile, shown);
  Json values = Json::array();
  for (const auto& [name, type] : exporter::named_values(profile))
    if (values.size() < kMostTexts)
      values.push_back({{"name", bounded(name)},
                        {"unit", bounded(unit_of(profile, type))},
                        {"sum", exporter::totals_of(profile, type).samples}});
  return {{"file", file},
          {"value", name_of(profile, shown)},
          {"unit", unit_of(profile, shown)},
          {"samples", totals.samples},
          {"truncated", totals.truncated},
          {"chained", totals.chained},
          {"lost", profile.lost},
          {"start_unix_ns", profile.start_unix_ns},
          {"duration_ns", profile.duration_ns},
          {"processes", exporter::processes_of(profile).size()},
          {"functions", profile.functions.size()},
          {"has_times", has_times(profile)},
          {"values", std::move(values)},
          {"labels", list_of_texts(exporter::label_keys(profile))},
          {"comments", list_of_texts(profile.comments)},
          {"notes", Json::array()}};
}

McpResult call_open_profile(McpContext& context, const Json& arguments) {
  McpResult result;
  const std::string file = text_argument(arguments, "file");
  const profile::Profile* profile = context.profiles.open(file, result.problem, context.open_watch);
  if (profile != nullptr) result.value = summary_of(file, *profile);
  return result;
}

McpResult call_top_functions(McpContext& context, const Json& arguments) {
  McpResult result;
  const auto chosen = choose_file(context, arguments, result);
  if (!chosen) return result;
  const McpTree tree(*chosen);
  const auto& counts = tree.tree.functions();
  auto order = functions_by_self(tree.frames, tree.tree);
  if (text_argument(arguments, "sort") == "total")
    std::ranges::stable_sort(order, [&](auto a, auto b) { return counts[a].total > counts[b].total; });
  const std::size_t shown = std::min(order.size(), limit_of(arguments));
  Json functions = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    const exporter::Frame& frame = tree.frames[order[i]];
    const exporter::FunctionCount& count = counts[order[i]];
    Json row = tree.frame(order[i]);
    row["file"] = frame.file.empty() ? Json(nullptr) : Json(bounded(frame.file));
    row["line"] = frame.line == 0 ? Json(nullptr) : Json(frame.line);
    row["self"] = count.self;
    row["total"] = count.total;
    row["self_share"] = rounded_share(count.self, tree.samples);
    row["total_share"] = rounded_share(count.total, tree.samples);
    functions.push_back(std::move(row));
  }
  result.value = head_of(*chosen, tree.samples, order.size() - shown);
  result.value["functions"] = std::move(functions);
  return result;
}

McpResult call_callers(McpContext& context, const Json& arguments) {
  McpResult result;
  const auto chosen = choose_callers(context, arguments, result.problem);
  if (!chosen) return result;
  const McpTree tree(*chosen);
  const auto& nodes = tree.tree.nodes();
  std::map<std::uint32_t, std::uint64_t> sums;
  for (const TreeNode& node : nodes)  // each stack ends at the function
    if (node.self != 0 && tree.is_function(node)) sums[nodes[node.parent].frame] += node.self;
  return relatives(*chosen, tree, arguments, "callers", sums, tree.samples);
}

McpResult call_callees(McpContext& context, const Json& arguments) {
  McpResult result;
  const auto chosen = choose_callees(context, arguments, result.problem);
  if (!chosen) return result;
  const McpTree tree(*chosen);
  const auto& nodes = tree.tree.nodes();
  std::map<std::uint32_t, std::uint64_t> sums;
  for (const TreeNode& node : nodes) {  // each stack begins at the function, below the thread's name
    if (node.parent == profile::kNone || !tree.is_function(node) || !tree.is_function(nodes[node.parent])) continue;
    if (!tree.is_function(nodes[nodes[node.parent].parent])) sums[node.frame] += node.total;
  }
  return relatives(*chosen, tree, arguments, "callees", sums, tree.samples);
}

McpResult call_call_tree(McpContext& context, const Json& arguments) {
  McpResult result;
  const auto chosen = choose_file(context, arguments, result);
  if (!chosen) return result;
  const McpTree tree(*chosen);
  const auto& nodes = tree.tree.nodes();
  const std::size_t limit = limit_of(arguments);
  const double least = arguments.at("least_share").get<double>() * static_cast<double>(tree.samples);
  // The heaviest nodes first. A node is at least as heavy as those below it.
  std::priority_queue<std::pair<std::uint64_t, std::int64_t>> heaviest;
  std::vector<std::uint32_t> depths(nodes.size(), profile::kNone);
  const auto push_below = [&](std::uint32_t node) {
    for (auto child = nodes[node].first_child; child != profile::kNone; child = nodes[child].next_sibling)
      if (static_cast<double>(nodes[child].total) >= least) heaviest.emplace(nodes[child].total, -std::int64_t{child});
  };
  std::size_t shown = 0;
  for (push_below(0); !heaviest.empty() && shown < limit; ++shown) {
    const auto node = static_cast<std::uint32_t>(-heaviest.top().second);
    heaviest.pop();
    const std::uint32_t parent = nodes[node].parent;
    depths[node] = parent == 0 ? 0 : depths[parent] + 1;
    push_below(node);
  }
  Json list = Json::array();
  std::vector<std::uint32_t> todo{0};
  while (!todo.empty()) {
    const std::uint32_t at = todo.back();
    todo.pop_back();
    if (at != 0) {
      Json row = tree.frame(nodes[at].frame);
      row["depth"] = depths[at];
      row["self"] = nodes[at].self;
      row["total"] = nodes[at].total;
      row["share"] = rounded_share(nodes[at].total, tree.samples);
      list.push_back(std::move(row));
    }
    const std::size_t first = todo.size();
    for (auto child = nodes[at].first_child; child != profile::kNone; child = nodes[child].next_sibling)
      if (depths[child] != profile::kNone) todo.push_back(child);
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
  }
  result.value = head_of(*chosen, tree.samples, nodes.size() - 1 - shown);
  result.value["nodes"] = std::move(list);
  return result;
}

McpResult call_processes(McpContext& context, const Json& arguments) {
  McpResult result;
  const auto chosen = choose_file(context, arguments, result);
  if (!chosen) return result;
  const auto processes = exporter::processes_of(chosen->profile, chosen->value);
  const std::uint64_t samples = exporter::totals_of(chosen->profile, chosen->value).samples;
  const std::size_t shown = std::min(processes.size(), limit_of(arguments));
  Json list = Json::array();
  for (std::size_t i = 0; i < shown; ++i)
    list.push_back({{"pid", processes[i].pid},
                    {"name", bounded(processes[i].name)},
                    {"sum", processes[i].weight},
                    {"share", rounded_share(processes[i].weight, samples)}});
  result.value = head_of(*chosen, samples, processes.size() - shown);
  result.value["processes"] = std::move(list);
  return result;
}

McpResult call_diff(McpContext& context, const Json& arguments) {
  McpResult result;
  const auto a = choose_samples(context, arguments, text_argument(arguments, "a"), result.problem);
  if (!a) return result;
  const auto b = choose_samples(context, arguments, text_argument(arguments, "b"), result.problem);
  if (!b) return result;
  if (name_of(a->profile, a->value) != name_of(b->profile, b->value)) {
    result.problem = fmt::format("{} has {}, and {} has {}. Way out: value, one that both have", a->file,
                                 name_of(a->profile, a->value), b->file, name_of(b->profile, b->value));
    return result;
  }
  const std::string how = text_argument(arguments, "normalise");
  const auto normalise = how == "time"   ? exporter::Normalise::kTime
                         : how == "none" ? exporter::Normalise::kNothing
                                         : exporter::Normalise::kSamples;
  auto difference = exporter::difference_of(a->profile, a->value, b->profile, b->value, normalise);
  if (!difference) {
    result.problem = difference.error().what;
    return result;
  }
  const std::size_t all = difference->functions.size(), shown = std::min(all, limit_of(arguments));
  difference->functions.resize(shown);
  std::string text;
  TextWriter out(&text);
  (void)exporter::write_diff_json(*difference, a->profile, b->profile, out);  // a text takes all
  std::vector<Json> lines = parse_lines(text);
  lines.front()["functions"] = all;
  Json functions = Json::array();
  for (std::size_t i = 1; i < lines.size(); ++i) functions.push_back(std::move(lines[i]));
  result.value = {{"diff", std::move(lines.front())}, {"functions", std::move(functions)}, {"more", all - shown}};
  return result;
}

}  // namespace windlass::cli
