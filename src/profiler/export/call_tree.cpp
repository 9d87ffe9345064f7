#include "profiler/export/call_tree.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "profiler/export/children.h"
#include "profiler/export/stack_nodes.h"

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

// Finds or adds the nodes of samples. Samples that share a node of their stacks, and what stands above the stack, share
// the nodes of the tree, too. So each node of the stacks is followed once.
class CallTree::Maker {
 public:
  Maker(std::vector<TreeNode>& nodes, const profile::Profile& profile, Frames& frames)
      : nodes_(nodes), frames_(frames), stacks_(profile), made_(stacks_.nodes().size()) {
    nodes_.reserve(made_.size());
    nodes_.emplace_back();
  }

  // `number`: of the sample.
  std::uint32_t node_of(std::size_t number, const Sample& sample) {
    frames_.begin_path(sample, path_);
    std::uint32_t above = 0;
    for (const std::uint32_t frame : path_) above = child_of(above, frame);
    stack_.clear();
    std::uint32_t node = above;
    for (std::uint32_t at = stacks_.of(number); at != 0; at = stacks_.nodes()[at].caller) {
      const std::uint32_t known = made_of(above, at);
      if (known != kNone) {
        node = known;
        break;
      }
      stack_.push_back(at);
    }
    for (auto at = stack_.rbegin(); at != stack_.rend(); ++at) {
      const auto ids = frames_.of_location(stacks_.nodes()[*at].location);
      for (auto frame = ids.rbegin(); frame != ids.rend(); ++frame) node = child_of(node, *frame);
      add_made({above, *at, node});
    }
    return node;
  }
  // What the samples behind this one need is scattered over memory.
  void prefetch(std::size_t number, std::size_t samples) const {
    constexpr std::size_t kAhead = 8;
    if (samples - number <= 2 * kAhead) return;
    __builtin_prefetch(&made_[stacks_.of(number + 2 * kAhead)]);
    if (const Made& made = made_[stacks_.of(number + kAhead)]; made.above != kNone)
      __builtin_prefetch(&nodes_[made.node].self);
  }

 private:
  // The node of the tree that a node of the stacks has below `above`.
  struct Made {
    std::uint32_t above = kNone, stack = 0, node = 0;
  };
  std::uint32_t child_of(std::uint32_t parent, std::uint32_t frame) {
    const auto key_of = [this](std::uint32_t node) { return Children::Key{nodes_[node].parent, nodes_[node].frame}; };
    const std::uint32_t known = children_.find({parent, frame}, key_of);
    if (known != kNone) return known;
    const auto child = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({.frame = frame, .parent = parent, .next_sibling = nodes_[parent].first_child});
    nodes_[parent].first_child = child;
    children_.add(child, key_of);
    return child;
  }
  // Most stacks stand below one thread's name.
  [[nodiscard]] std::uint32_t made_of(std::uint32_t above, std::uint32_t stack) const {
    if (made_[stack].above == above) return made_[stack].node;
    const std::uint32_t other = others_.find(mix_hash(above, stack), [&](std::uint32_t number) {
      return more_[number].above == above && more_[number].stack == stack;
    });
    return other != kNone ? more_[other].node : kNone;
  }
  void add_made(const Made& made) {
    if (made_[made.stack].above == kNone) {
      made_[made.stack] = made;
      return;
    }
    more_.push_back(made);
    others_.add(static_cast<std::uint32_t>(more_.size() - 1),
                [&](std::uint32_t number) { return mix_hash(more_[number].above, more_[number].stack); });
  }

  std::vector<TreeNode>& nodes_;
  Frames& frames_;
  const StackNodes stacks_;
  Children children_;
  std::vector<Made> made_;  // of each node of the stacks: the first one
  std::vector<Made> more_;
  HashSlots others_;                  // of more_
  std::vector<std::uint32_t> path_;   // above the stack at hand
  std::vector<std::uint32_t> stack_;  // its nodes that are new, from the innermost one
};

CallTree::CallTree(const profile::Profile& profile, Frames& frames, profile::ValueType type, std::uint32_t pid) {
  Maker maker(nodes_, profile, frames);
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
