#include "profiler/export/call_tree.h"

#include <algorithm>

#include "profiler/export/stacks.h"

namespace windlass::exporter {

using profile::kNone;
using profile::Sample;

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

// (parent, frame) -> child, for building only.
class CallTree::Children {
 public:
  std::uint32_t& at(std::uint32_t parent, std::uint32_t frame) {
    if (used_ * 2 >= slots_.size()) grow();
    auto& slot = find(std::uint64_t{parent} << 32 | frame);
    if (slot.node == kNone && slot.key == kEmpty) {
      slot.key = std::uint64_t{parent} << 32 | frame;
      ++used_;
    }
    return slot.node;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~0ull;  // parent kNone never has children
  struct Slot {
    std::uint64_t key = kEmpty;
    std::uint32_t node = kNone;
  };
  Slot& find(std::uint64_t key) {
    std::size_t slot = mix_hash(0, key) & (slots_.size() - 1);
    while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
    return slots_[slot];
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 4096 : slots_.size() * 2);
    old.swap(slots_);
    for (const auto& slot : old)
      if (slot.key != kEmpty) find(slot.key) = slot;
  }
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

CallTree::CallTree(const profile::Profile& profile, Frames& frames, profile::ValueType type, std::uint32_t pid) {
  DistinctStacks distinct(profile, type);
  if (pid == kNone) distinct.add_all(profile.samples);
  for (const Sample& sample : profile.samples)
    if (pid != kNone && sample.pid == pid) distinct.add(sample);
  nodes_.emplace_back();
  Children children;
  std::vector<std::uint32_t> path;
  for (const auto& stack : distinct.stacks()) insert(*stack.sample, stack.weight, frames, children, path);
  functions_.resize(frames.size());
  add_totals_and_sort(frames);
}

void CallTree::insert(const Sample& sample, std::uint64_t count, Frames& frames, Children& children,
                      std::vector<std::uint32_t>& path) {
  frames.path_of(sample, path);
  std::uint32_t node = 0;
  for (const auto frame : path) {
    std::uint32_t& child = children.at(node, frame);
    if (child == kNone) {
      child = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({.frame = frame, .parent = node, .next_sibling = nodes_[node].first_child});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  nodes_[node].self += count;
  count_functions(path, count);
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
  std::vector<std::uint32_t> order;
  for (auto& node : nodes_) {
    order.clear();
    for (auto child = node.first_child; child != kNone; child = nodes_[child].next_sibling) order.push_back(child);
    if (order.size() < 2) continue;
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      if (nodes_[a].total != nodes_[b].total) return nodes_[a].total > nodes_[b].total;
      const int names = frames[nodes_[a].frame].name.compare(frames[nodes_[b].frame].name);
      return names != 0 ? names < 0 : nodes_[a].frame < nodes_[b].frame;
    });
    node.first_child = order.front();
    for (std::size_t i = 0; i < order.size(); ++i)
      nodes_[order[i]].next_sibling = i + 1 < order.size() ? order[i + 1] : kNone;
  }
}

}  // namespace windlass::exporter
