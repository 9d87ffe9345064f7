#include "export/html.h"

#include <algorithm>
#include <numeric>

#include "base/json_writer.h"
#include "export/call_tree.h"
#include "export/numbers.h"
#include "export/page_assets.h"

namespace windlass::exporter {

namespace {

using profile::kNone;

// The profile as the page's script reads it (page.js): flat arrays, so that 100,000 nodes stay small and quick.
class PageData {
 public:
  PageData(const profile::Profile& profile, TextWriter& out, const HtmlOptions& options)
      : profile_(profile),
        json_(out),
        frames_(profile),
        tree_(profile, frames_),
        totals_(totals_of(profile)),
        smallest_(smallest_drawn(options.max_nodes)) {}

  void write() {
    json_.begin_object();
    write_totals();
    order_modules();
    write_modules();
    choose_nodes();
    write_frames();
    write_nodes();
    json_.end_object();
  }

 private:
  // Nodes with at least this many samples fit the limit. A child never has more than its parent, so they form a tree.
  [[nodiscard]] std::uint64_t smallest_drawn(std::size_t max_nodes) const {
    if (tree_.nodes().size() <= max_nodes) return 1;
    std::vector<std::uint64_t> totals;
    for (const auto& node : tree_.nodes()) totals.push_back(node.total);
    std::nth_element(totals.begin(), totals.begin() + static_cast<std::ptrdiff_t>(max_nodes), totals.end(),
                     std::greater<>());
    return totals[max_nodes] + 1;
  }

  void write_totals() {
    json_.key("totals");
    json_.begin_object();
    json_.member("samples", totals_.samples);
    json_.member("truncated", totals_.truncated);
    json_.member("lost", profile_.lost);
    json_.member("hz", frequency_of(profile_), 0);
    json_.member("seconds", static_cast<double>(profile_.duration_ns) / 1e9, 3);
    json_.member("cpu_seconds", static_cast<double>(totals_.samples) * static_cast<double>(profile_.period_ns) / 1e9,
                 3);
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
    for (const auto& comment : profile_.comments) json_.value(comment);
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
    for (std::uint32_t id = 0; id < tree_.functions().size(); ++id)
      if (frames_[id].module < profile_.modules.size())
        modules_[page_module_[frames_[id].module]].self += tree_.functions()[id].self;
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
      json_.member("name", module_name(module));
      json_.member("path", module.path);
      json_.member("kernel", module.is_kernel);
      json_.member("self", entry.self);
      json_.end_object();
    }
    json_.end_array();
  }

  // Preorder, children by descending total, so each subtree is left at its first child that is too small.
  void choose_nodes() {
    const auto& nodes = tree_.nodes();
    std::vector<std::pair<std::uint32_t, std::uint32_t>> todo{{0, 0}};  // (node, its parent's place)
    while (!todo.empty()) {
      const auto [node, parent] = todo.back();
      todo.pop_back();
      const auto place = static_cast<std::uint32_t>(drawn_.size());
      drawn_.emplace_back(node, place - parent);
      const std::size_t first = todo.size();
      for (auto child = nodes[node].first_child; child != kNone && nodes[child].total >= smallest_;
           child = nodes[child].next_sibling)
        todo.emplace_back(child, place);
      std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
    }
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
    std::uint32_t count = 1;
    for (const auto& [node, up] : drawn_) {
      const std::uint32_t id = tree_.nodes()[node].frame;
      if (id == kNone || page_frame_[id] != kNone) continue;
      page_frame_[id] = count++;
      write_frame(id);
    }
    json_.end_array();
  }
  void write_frame(std::uint32_t id) {
    const Frame& frame = frames_[id];
    const bool has_module = frame.module < profile_.modules.size();
    json_.next_line();
    json_.begin_object();
    json_.member("name", frame.name);
    json_.member("module", has_module ? static_cast<std::int64_t>(page_module_[frame.module]) : -1);
    json_.member("kind", static_cast<int>(frame.kind));
    json_.member("self", tree_.functions()[id].self);
    json_.member("total", tree_.functions()[id].total);
    if (!frame.file.empty()) {
      json_.member("file", frame.file);
      json_.member("line", frame.line);
    }
    json_.end_object();
  }

  template <typename Number>
  void write_array(std::string_view name, Number number) {
    json_.key(name);
    json_.begin_array();
    for (const auto& entry : drawn_) json_.value(number(entry.first, entry.second));
    json_.end_array();
  }
  void write_nodes() {
    const auto& nodes = tree_.nodes();
    json_.key("left_out");
    json_.begin_object();
    json_.member("nodes", nodes.size() - drawn_.size());
    json_.member("below", smallest_);
    json_.end_object();
    json_.key("nodes");
    json_.begin_object();
    write_array("frame", [&](auto node, auto) { return node == 0 ? 0 : page_frame_[nodes[node].frame]; });
    write_array("up", [](auto, auto up) { return up; });
    write_array("total", [&](auto node, auto) { return nodes[node].total; });
    write_array("self", [&](auto node, auto) { return nodes[node].self; });
    json_.end_object();
  }

  struct PageModule {
    std::uint32_t module = kNone;
    std::uint64_t self = 0;
  };

  const profile::Profile& profile_;
  JsonWriter json_;
  Frames frames_;
  CallTree tree_;
  Totals totals_;
  std::uint64_t smallest_;
  std::vector<PageModule> modules_;
  std::vector<std::uint32_t> page_module_;                      // Profile's module -> the page's
  std::vector<std::uint32_t> page_frame_;                       // frame id -> the page's
  std::vector<std::pair<std::uint32_t, std::uint32_t>> drawn_;  // (node, how far before it its parent is)
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
  PageData(profile, out, options).write();
  until(profile_at + std::string_view("@PROFILE@").size(), scripts_at);
  for (const auto script : web_scripts()) {
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
