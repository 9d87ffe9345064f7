#include "profiler/export/page_trees.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace windlass::exporter {
namespace {

using profile::kNone;

// Nodes with at least this many samples fit the limit. A child never has more than its parent, so they form a tree.
std::uint64_t smallest_drawn(const std::vector<TreeNode>& nodes, std::size_t max_nodes) {
  if (nodes.size() <= max_nodes) return 1;
  std::vector<std::uint64_t> totals;
  totals.reserve(nodes.size());
  for (const TreeNode& node : nodes) totals.push_back(node.total);
  std::nth_element(totals.begin(), totals.begin() + static_cast<std::ptrdiff_t>(max_nodes), totals.end(),
                   std::greater<>());
  return totals[max_nodes] + 1;
}

// Paths that begin alike: those nodes of the call tree where they stand now, and how many samples came from each.
struct CallerGroup {
  std::uint32_t place = 0;  // of its node in the page's tree
  std::uint64_t total = 0;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> ends;
  bool first = false;  // the functions themselves, before who calls them
  auto key() const { return std::pair(first, total); }
  bool operator<(const CallerGroup& other) const { return key() < other.key(); }
};

}  // namespace

PageTree call_page_tree(const CallTree& tree, std::size_t max_nodes) {
  const auto& nodes = tree.nodes();
  PageTree page;
  page.below = smallest_drawn(nodes, max_nodes);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> todo{{0, 0}};  // (node, its parent's place)
  while (!todo.empty()) {
    const auto [node, parent] = todo.back();
    todo.pop_back();
    const auto place = static_cast<std::uint32_t>(page.nodes.size());
    page.nodes.push_back({nodes[node].frame, parent, nodes[node].total, nodes[node].self});
    const std::size_t first = todo.size();
    for (auto child = nodes[node].first_child; child != kNone && nodes[child].total >= page.below;
         child = nodes[child].next_sibling)
      todo.emplace_back(child, place);
    std::reverse(todo.begin() + static_cast<std::ptrdiff_t>(first), todo.end());
  }
  return page;
}

PageTree callers_page_tree(const CallTree& tree, std::size_t max_nodes) {
  const auto& nodes = tree.nodes();
  PageTree page;
  page.nodes.push_back({kNone, 0, nodes[0].total, 0});
  CallerGroup root{.place = 0, .total = nodes[0].total, .ends = {}};
  for (std::uint32_t node = 0; node < nodes.size(); ++node)
    if (nodes[node].self != 0 && node != 0) root.ends.emplace_back(node, nodes[node].self);
  // The widest group first, so that what is left out in the end are the narrowest ones.
  std::vector<CallerGroup> todo;  // a heap
  const auto expand = [&](const CallerGroup& group) {
    std::unordered_map<std::uint32_t, CallerGroup> by_frame;
    for (const auto& [at, count] : group.ends) {
      const std::uint32_t next = group.place == 0 ? at : nodes[at].parent;
      if (next == 0) continue;
      CallerGroup& to = by_frame[nodes[next].frame];
      to.total += count;
      to.ends.emplace_back(next, count);
    }
    for (auto& [frame, to] : by_frame) {
      to.place = group.place;  // its parent's, until it is drawn itself
      todo.push_back(std::move(to));
      std::push_heap(todo.begin(), todo.end());
    }
  };
  expand(root);
  // Functions come first, up to half of the nodes.
  std::ranges::sort(todo, std::ranges::greater(), &CallerGroup::total);
  for (std::size_t i = 0; i < std::min(todo.size(), max_nodes / 2); ++i) todo[i].first = true;
  std::make_heap(todo.begin(), todo.end());
  while (!todo.empty() && page.nodes.size() < max_nodes) {
    std::pop_heap(todo.begin(), todo.end());
    CallerGroup group = std::move(todo.back());
    todo.pop_back();
    const std::uint32_t parent = group.place;
    group.place = static_cast<std::uint32_t>(page.nodes.size());
    page.nodes.push_back({nodes[group.ends.front().first].frame, parent, group.total, parent == 0 ? group.total : 0});
    expand(group);
  }
  return page;
}

}  // namespace windlass::exporter
