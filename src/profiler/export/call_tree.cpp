#include "profiler/export/call_tree.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "profiler/export/tree_maker.h"

namespace windlass::exporter {

using profile::kNone;
using profile::Sample;

std::vector<std::uint64_t> sums_of(const profile::Profile& profile, std::span<const profile::ValueType> types) {
  std::vector<std::uint64_t> sums(types.size());
  for (const auto& sample : profile.samples)
    for (std::size_t i = 0; i < types.size(); ++i) sums[i] += weight_of(profile, sample, types[i]);
  return sums;
}

Totals totals_of(const profile::Profile& profile, profile::ValueType type) {
  Totals totals;
  for (const auto& sample : profile.samples) {
    const std::uint64_t weight = weight_of(profile, sample, type);
    totals.samples += weight;
    totals.by_end[sample.end] += weight;
    if (profile::is_truncated(sample.end)) totals.truncated += weight;
    if (profile::is_chained(sample.end)) totals.chained += weight;
  }
  return totals;
}

CallTree::CallTree(const profile::Profile& profile, Frames& frames, profile::ValueType type, std::uint32_t pid) {
  TreeMaker maker(nodes_, profile, frames);
  for (std::size_t i = 0; i < profile.samples.size(); ++i) {
    maker.prefetch(i, profile.samples.size());
    const Sample& sample = profile.samples[i];
    if (pid != kNone && sample.pid != pid) continue;
    if (const std::uint64_t weight = weight_of(profile, sample, type)) nodes_[maker.node_of(i, sample)].self += weight;
  }
  add_totals_and_sort(frames);
  count_functions(frames.size());
}

void CallTree::count_functions(std::size_t frames) {
  functions_.resize(frames);
  std::vector<std::uint32_t> open(frames);  // nodes of the frame between the root and the node at hand
  for (std::uint32_t at = nodes_[0].first_child; at != kNone;) {
    const TreeNode& node = nodes_[at];
    FunctionCount& function = functions_[node.frame];
    function.self += node.self;
    if (open[node.frame]++ == 0) function.total += node.total;  // a recursive function counts once
    std::uint32_t next = node.first_child;
    for (; next == kNone && at != 0; at = nodes_[at].parent) {
      --open[nodes_[at].frame];
      next = nodes_[at].next_sibling;
    }
    at = next;
  }
}

void CallTree::add_totals_and_sort(const Frames& frames) {
  // A child is always made after its parent, so one backward pass sums whole subtrees.
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    nodes_[i].total += nodes_[i].self;
    if (i != 0) nodes_[nodes_[i].parent].total += nodes_[i].total;
  }
  // Most siblings of a large tree have equal totals, so their names are compared: better once than for each pair.
  std::vector<std::uint32_t> ranks;
  const auto is_before = [&](std::uint32_t a, std::uint32_t b) {
    const int names = frames[a].name.compare(frames[b].name);
    return names != 0 ? names < 0 : a < b;
  };
  if (nodes_.size() / 16 > frames.size()) {
    std::vector<std::uint32_t> by_name(frames.size());
    std::iota(by_name.begin(), by_name.end(), 0u);
    std::ranges::sort(by_name, is_before);
    ranks.resize(frames.size());
    for (std::uint32_t rank = 0; rank < by_name.size(); ++rank) ranks[by_name[rank]] = rank;
  }
  struct Child {
    std::uint64_t total;
    std::uint32_t frame, node;
  };
  std::vector<Child> order;
  for (auto& node : nodes_) {
    order.clear();
    for (auto child = node.first_child; child != kNone; child = nodes_[child].next_sibling)
      order.push_back({nodes_[child].total, nodes_[child].frame, child});
    if (order.size() < 2) continue;
    std::sort(order.begin(), order.end(), [&](const Child& a, const Child& b) {
      if (a.total != b.total) return a.total > b.total;
      return ranks.empty() ? is_before(a.frame, b.frame) : ranks[a.frame] < ranks[b.frame];
    });
    node.first_child = order.front().node;
    for (std::size_t i = 0; i < order.size(); ++i)
      nodes_[order[i].node].next_sibling = i + 1 < order.size() ? order[i + 1].node : kNone;
  }
}

std::vector<std::uint32_t> functions_by_self(const Frames& frames, const CallTree& tree, std::size_t sorted) {
  const auto& counts = tree.functions();
  std::vector<std::uint32_t> order;
  for (std::uint32_t id = 0; id < frames.size(); ++id)
    if (const FrameKind kind = frames.kind_of(id);
        kind != FrameKind::kComm && kind != FrameKind::kTruncated && counts[id].total != 0)
      order.push_back(id);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(sorted, order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(counts[b].self, counts[b].total, a) < std::tuple(counts[a].self, counts[a].total, b);
  });
  return order;
}

}  // namespace windlass::exporter
