#include "profiler/export/call_tree.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "profiler/export/stacks.h"

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

// The nodes by the hashes of their paths, for building only. All nodes of a path are known if its last one is. So a
// search by halves finds the first new node, and most nodes of a stack are not looked at: each look is a cache miss. 96
// bits stand for a path. The chance of a collision among ten million nodes is 10^-15.
class CallTree::Paths {
 public:
  struct Hash {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
  };

  std::vector<Hash> hashes;  // of the path at hand

  [[nodiscard]] std::uint32_t find(const Hash& hash) const {
    if (slots_.empty()) return kNone;
    return slots_[slot_of(hash)].node;
  }
  void add(const Hash& hash, std::uint32_t node) {
    if (++used_ * 2 >= slots_.size()) grow();
    slots_[slot_of(hash)] = {hash.low, hash.high, node};
  }

 private:
  struct Slot {  // 16 bytes
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t node = kNone;
  };
  [[nodiscard]] std::size_t slot_of(const Hash& hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash.low & mask;
    while (slots_[at].node != kNone && (slots_[at].low != hash.low || slots_[at].high != hash.high))
      at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 4096 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.node != kNone) slots_[slot_of({slot.low, slot.high})] = slot;
  }
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

CallTree::CallTree(const profile::Profile& profile, Frames& frames, profile::ValueType type, std::uint32_t pid) {
  nodes_.emplace_back();
  Paths paths;
  std::vector<std::uint32_t> path;
  for (std::size_t i = 0; i < profile.samples.size(); ++i) {
    prefetch_stack(profile.samples, i);
    const Sample& sample = profile.samples[i];
    if (pid != kNone && sample.pid != pid) continue;
    const std::uint64_t weight = weight_of(profile, sample, type);
    if (weight == 0) continue;
    frames.path_of(sample, path);
    nodes_[node_of(path, paths)].self += weight;
    count_functions(path, weight);
  }
  functions_.resize(frames.size());
  add_totals_and_sort(frames);
}

std::uint32_t CallTree::node_of(const std::vector<std::uint32_t>& path, Paths& paths) {
  auto& hashes = paths.hashes;
  hashes.assign(1, {});
  for (std::size_t i = 0; i < path.size(); ++i)
    hashes.push_back(
        {mix_hash(hashes[i].low, path[i]), (hashes[i].high ^ path[i]) * 0x85ebca6bu + (hashes[i].high >> 15)});
  std::uint32_t node = 0;
  std::size_t known = 0;  // frames of the path that have a node, at least
  for (std::size_t beyond = path.size() + 1; known + 1 < beyond;) {
    const std::size_t middle = known + (beyond - known) / 2;
    const std::uint32_t found = paths.find(hashes[middle]);
    if (found == kNone) {
      beyond = middle;
    } else {
      known = middle;
      node = found;
    }
  }
  for (; known < path.size(); ++known) {
    const auto child = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({.frame = path[known], .parent = node, .next_sibling = nodes_[node].first_child});
    nodes_[node].first_child = child;
    paths.add(hashes[known + 1], child);
    node = child;
  }
  return node;
}

void CallTree::count_functions(const std::vector<std::uint32_t>& path, std::uint64_t count) {
  ++stack_number_;
  for (const auto frame : path) {
    if (frame >= functions_.size()) {
      functions_.resize(frame + 1);
      last_stack_.resize(frame + 1, 0);
    }
    if (last_stack_[frame] != stack_number_) functions_[frame].total += count;
    last_stack_[frame] = stack_number_;
  }
  functions_[path.back()].self += count;
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
