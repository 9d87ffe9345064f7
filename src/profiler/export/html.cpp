#include "profiler/export/html.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/json_writer.h"
#include "base/shown.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/labels.h"
#include "profiler/export/numbers.h"
#include "profiler/export/page_assets.h"
#include "profiler/export/page_trees.h"
#include "profiler/export/processes.h"
#include "profiler/export/shorten_name.h"

namespace windlass::exporter {

namespace {

using profile::kNone;

// An event of the profile as the page's script reads it (page.js): flat arrays, so that 100,000 nodes stay small and
// quick.
class PageData {
 public:
  PageData(const profile::Profile& profile, profile::ValueType type, JsonWriter& json, const HtmlOptions& options)
      : profile_(profile), type_(type), json_(json), frames_(profile), totals_(totals_of(profile, type)) {
    const CallTree tree(profile, frames_, type);
    functions_ = tree.functions();
    nodes_ = tree.nodes().size();
    views_.push_back(make_view({}, tree, options.max_nodes, kFunctions));
    add_processes(options.max_nodes);
    order_modules();
    count_lines();
  }

  void write() {
    json_.begin_object();
    json_.member("event", shown(event_of(profile_, type_).name));
    json_.member("value", shown(name_of(profile_, type_)));
    json_.member("counted", shown(event_of(profile_, type_).counted));
    json_.member("unit", shown(unit_of(profile_, type_)));
    json_.member("grouped", !profile_.roots.empty());
    write_totals();
    write_labels();
    write_modules();
    write_frames();
    json_.key("left_out");
    json_.begin_object();
    json_.member("nodes", nodes_ - views_[0].calls.nodes.size());
    json_.member("below", views_[0].calls.below);
    json_.end_object();
    write_view(views_[0]);
    json_.key("processes");
    json_.begin_array();
    for (std::size_t i = 1; i < views_.size(); ++i) {
      json_.next_line();
      json_.begin_object();
      json_.member("name", shown(views_[i].name));
      json_.member("samples", views_[i].calls.nodes[0].total);
      write_view(views_[i]);
      json_.end_object();
    }
    json_.end_array();
    json_.end_object();
  }

 private:
  static constexpr std::size_t kFunctions = 5000;         // rows of the table
  static constexpr std::size_t kProcessFunctions = 1000;  // of a single process
  static constexpr std::size_t kProcesses = 20;
  static constexpr std::size_t kLines = 16;  // of a function
  static constexpr std::size_t kLabels = 8;
  static constexpr std::size_t kLabelValues = 8;

  // The whole profile, or one process of it.
  struct View {
    std::string name;
    PageTree calls, callers;
    std::vector<std::pair<std::uint32_t, FunctionCount>> functions;
  };

  static View make_view(const std::string& name, const CallTree& tree, std::size_t max_nodes, std::size_t functions) {
    View view{
        name, call_page_tree(tree, max_nodes), callers_page_tree(tree, std::max<std::size_t>(max_nodes / 2, 2)), {}};
    for (std::uint32_t id = 0; id < tree.functions().size(); ++id)
      if (tree.functions()[id].total != 0) view.functions.emplace_back(id, tree.functions()[id]);
    std::ranges::stable_sort(view.functions, [](const auto& a, const auto& b) {
      return std::pair(a.second.self, a.second.total) > std::pair(b.second.self, b.second.total);
    });
    if (view.functions.size() > functions) view.functions.resize(functions);
    return view;
  }

  void add_processes(std::size_t max_nodes) {
    const std::vector<Process> processes = processes_of(profile_, type_);
    if (processes.size() < 2) return;
    for (std::size_t i = 0; i < std::min(processes.size(), kProcesses); ++i) {
      const std::size_t share = share_of(max_nodes, processes[i].weight);
      const CallTree tree(profile_, frames_, type_, processes[i].pid);
      views_.push_back(make_view(processes[i].name, tree, std::max<std::size_t>(share, 100), kProcessFunctions));
    }
  }

  // The part of `most` that a weight is of the whole.
  [[nodiscard]] std::size_t share_of(std::size_t most, std::uint64_t weight) const {
    if (totals_.samples == 0) return 0;
    return static_cast<std::size_t>(static_cast<double>(most) * static_cast<double>(weight) /
                                    static_cast<double>(totals_.samples));
  }

  // A function's own samples by the line they are in.
  void count_lines() {
    for (const profile::Sample& sample : profile_.samples) {
      const std::uint64_t weight = weight_of(profile_, sample, type_);
      if (weight == 0 || sample.locations.empty()) continue;
      const auto& lines = profile_.locations[sample.locations.front()].lines;
      if (lines.empty() || lines.front().line == 0) continue;
      lines_[frames_.of_location(sample.locations.front()).front()][lines.front().line] += weight;
    }
  }

  void write_totals() {
    json_.key("totals");
    json_.begin_object();
    json_.member("samples", totals_.samples);
    json_.member("truncated", totals_.truncated);
    json_.member("chained", totals_.chained);
    json_.member("lost", profile_.lost);
    const profile::Event& event = event_of(profile_, type_);
    json_.member("hz", frequency_of(event), 0);
    json_.member("seconds", static_cast<double>(profile_.duration_ns) / 1e9, 3);
    json_.member("sampled_seconds", seconds_of(event, type_, totals_), 3);
    json_.member("start_unix_ms", profile_.start_unix_ns / 1'000'000);
    json_.end_object();
    json_.key("ends");
    json_.begin_array();
    for (std::uint8_t end = 0; end < WL_END_COUNT; ++end) {
      if (totals_.by_end[end] == 0 || !profile::is_truncated(end)) continue;
      json_.begin_array();
      json_.value(profile::end_text(end));
      json_.value(totals_.by_end[end]);
      json_.end_array();
    }
    json_.end_array();
    json_.key("comments");
    json_.begin_array();
    for (const auto& comment : profile_.comments) json_.value(shown(comment));
    json_.end_array();
  }

  // [key, [[value, its weight]...], how many values more, the weight of samples without the label]
  void write_labels() {
    json_.key("labels");
    json_.begin_array();
    const auto labels = label_shares(profile_, type_);
    for (std::size_t i = 0; i < std::min(labels.size(), kLabels); ++i) {
      const auto& [key, shares, without] = labels[i];
      json_.begin_array();
      json_.value(shown(key));
      json_.begin_array();
      for (std::size_t n = 0; n < std::min(shares.size(), kLabelValues); ++n) {
        json_.begin_array();
        json_.value(shown(shares[n].text));
        json_.value(shares[n].weight);
        json_.end_array();
      }
      json_.end_array();
      json_.value(shares.size() - std::min(shares.size(), kLabelValues));
      json_.value(without);
      json_.end_array();
    }
    json_.end_array();
  }

  // Heaviest first: the page gives the first ones the hues that are easiest to distinguish. Modules of one name (the
  // same library in several containers, anonymous memory of several processes) are one.
  void order_modules() {
    std::unordered_map<std::string_view, std::uint32_t> by_name;
    page_module_.assign(profile_.modules.size(), kNone);
    for (std::uint32_t i = 0; i < profile_.modules.size(); ++i) {
      const auto [entry, is_new] = by_name.try_emplace(module_name(profile_.modules[i]), modules_.size());
      if (is_new) modules_.push_back({.module = i});
      page_module_[i] = entry->second;
    }
    for (std::uint32_t id = 0; id < functions_.size(); ++id)
      if (frames_[id].module < profile_.modules.size())
        modules_[page_module_[frames_[id].module]].self += functions_[id].self;
    std::vector<std::uint32_t> order(modules_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return modules_[a].self > modules_[b].self; });
    std::vector<std::uint32_t> place(order.size());
    std::vector<PageModule> sorted;
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      sorted.push_back(modules_[order[i]]);
    }
    modules_ = std::move(sorted);
    for (auto& module : page_module_) module = place[module];
  }
  void write_modules() {
    json_.key("modules");
    json_.begin_array();
    for (const auto& entry : modules_) {
      const auto& module = profile_.modules[entry.module];
      json_.next_line();
      json_.begin_object();
      json_.member("name", shown(module_name(module)));
      json_.member("path", shown(module.path));
      json_.member("kernel", module.is_kernel);
      json_.member("self", entry.self);
      json_.end_object();
    }
    json_.end_array();
  }

  void write_frames() {
    page_frame_.assign(frames_.size(), kNone);
    json_.key("frames");
    json_.begin_array();
    json_.begin_object();
    json_.member("name", "all");
    json_.member("module", -1);
    json_.member("kind", 2);
    json_.end_object();
    for (const View& view : views_) {
      for (const PageTree* tree : {&view.calls, &view.callers})
        for (const PageNode& node : tree->nodes) write_frame(node.frame);
      for (const auto& [id, count] : view.functions) write_frame(id);
    }
    json_.end_array();
  }

  // Once.
  void write_frame(std::uint32_t id) {
    if (id == kNone || page_frame_[id] != kNone) return;
    page_frame_[id] = page_frames_++;
    const Frame& frame = frames_[id];
    const bool has_module = frame.module < profile_.modules.size();
    json_.next_line();
    json_.begin_object();
    const std::string name = shown(frame.name);
    json_.member("name", name);
    // What a search goes by, where that is less than the name.
    if (const std::size_t plain = length_without_parameters(name); plain != name.size())
      json_.member("plain", std::string_view(name).substr(0, plain));
    json_.member("module", has_module ? static_cast<std::int64_t>(page_module_[frame.module]) : -1);
    json_.member("kind", static_cast<int>(frame.kind));
    const FunctionCount count = id < functions_.size() ? functions_[id] : FunctionCount{};
    json_.member("self", count.self);
    json_.member("total", count.total);
    if (!frame.file.empty()) {
      json_.member("file", shown(frame.file));
      json_.member("line", frame.line);
      write_lines(id);
    }
    json_.end_object();
  }

  void write_lines(std::uint32_t id) {
    const auto found = lines_.find(id);
    if (found == lines_.end()) return;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> most;
    for (const auto& [line, count] : found->second) most.emplace_back(count, line);
    std::ranges::sort(most, std::greater());
    json_.key("lines");
    json_.begin_array();
    for (std::size_t i = 0; i < std::min(most.size(), kLines); ++i) {
      json_.begin_array();
      json_.value(most[i].second);
      json_.value(most[i].first);
      json_.end_array();
    }
    json_.end_array();
  }

  template <typename Number>
  void write_array(std::string_view name, const PageTree& tree, Number number) {
    json_.key(name);
    json_.begin_array();
    for (std::uint32_t i = 0; i < tree.nodes.size(); ++i) json_.value(number(tree.nodes[i], i));
    json_.end_array();
  }
  void write_tree(std::string_view name, const PageTree& tree) {
    json_.key(name);
    json_.begin_object();
    write_array("frame", tree,
                [&](const PageNode& node, auto) { return node.frame == kNone ? 0 : page_frame_[node.frame]; });
    write_array("up", tree, [](const PageNode& node, std::uint32_t place) { return place - node.parent; });
    write_array("total", tree, [](const PageNode& node, auto) { return node.total; });
    write_array("self", tree, [](const PageNode& node, auto) { return node.self; });
    json_.end_object();
  }
  void write_view(const View& view) {
    write_tree("nodes", view.calls);
    write_tree("callers", view.callers);
    json_.key("functions");
    json_.begin_array();
    for (const auto& [id, count] : view.functions) {
      json_.begin_array();
      json_.value(page_frame_[id]);
      json_.value(count.self);
      json_.value(count.total);
      json_.end_array();
    }
    json_.end_array();
  }

  struct PageModule {
    std::uint32_t module = kNone;
    std::uint64_t self = 0;
  };

  const profile::Profile& profile_;
  const profile::ValueType type_;
  JsonWriter& json_;
  Frames frames_;
  Totals totals_;
  std::size_t nodes_ = 0;                 // of the whole profile's tree
  std::vector<FunctionCount> functions_;  // of the whole profile, by frame id
  std::vector<View> views_;               // the whole profile, then processes
  std::unordered_map<std::uint32_t, std::unordered_map<std::uint32_t, std::uint64_t>> lines_;  // by frame id, by line
  std::vector<PageModule> modules_;
  std::vector<std::uint32_t> page_module_;  // Profile's module -> the page's
  std::vector<std::uint32_t> page_frame_;   // frame id -> the page's
  std::uint32_t page_frames_ = 1;           // 0 is the root
};

}  // namespace

bool html_available() { return !web_scripts().empty(); }

Expected<void> write_html(const profile::Profile& profile, TextWriter& out, const HtmlOptions& options) {
  if (!html_available())
    return fail(ErrorCode::kUnsupported,
                "this build has no HTML page: npm could not be reached when it was configured; configure it again", 0);
  const std::string_view page = page_template();
  const auto profile_at = page.find("@PROFILE@"), scripts_at = page.find("@SCRIPTS@"),
             page_script_at = page.find("@PAGE_SCRIPT@");
  const auto until = [&](std::size_t from, std::size_t to) { out.text(page.substr(from, to - from)); };
  until(0, profile_at);
  JsonWriter json(out);
  json.begin_array();
  const profile::ValueType first = options.first.value_or(shown_by_default(profile));
  PageData(profile, first, json, options).write();
  for (std::uint32_t event = 0; event < profile.events.size(); ++event)
    if (event != first.event) PageData(profile, shown_of(profile, event), json, options).write();
  if (has_wall_time(profile) && !is_wall_time(first)) PageData(profile, profile::kWallTime, json, options).write();
  json.end_array();
  until(profile_at + std::string_view("@PROFILE@").size(), scripts_at);
  for (const std::string& script : web_scripts()) {
    out.text("<script>");
    out.text(script);
    out.text("</script>\n");
  }
  until(scripts_at + std::string_view("@SCRIPTS@").size(), page_script_at);
  out.text(page_script());
  until(page_script_at + std::string_view("@PAGE_SCRIPT@").size(), page.size());
  return out.finish();
}

}  // namespace windlass::exporter
