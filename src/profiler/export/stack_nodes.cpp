#include "profiler/export/stack_nodes.h"

#include <algorithm>

namespace windlass::exporter {

using profile::Sample;

std::uint32_t StackInterner::node_of(std::span<const std::uint32_t> stack) {
  const auto key_of = [this](std::uint32_t node) {
    const profile::StackPool::Node& one = pool_.nodes()[node];
    return Children::Key{one.caller, one.location};
  };
  std::uint32_t node = 0;
  std::size_t left = stack.size();
  for (; left != 0; --left) {
    const std::uint32_t known = children_.find({node, stack[left - 1]}, key_of);
    if (known == profile::kNone) break;
    node = known;
  }
  for (; left != 0; --left) {
    node = pool_.push(node, stack[left - 1]);
    children_.add(node, key_of);
  }
  return node;
}

StackNodes::StackNodes(const profile::Profile& profile) : profile_(profile) {
  const auto& samples = profile.samples;
  const profile::StackPool* const pool = samples.empty() ? nullptr : samples.front().locations.pool();
  if (pool != nullptr &&
      std::ranges::all_of(samples, [&](const Sample& sample) { return sample.locations.pool() == pool; })) {
    root_ = samples.front().locations.at_node(0, 0);
    return;
  }
  root_ = profile::Stack::in_new_pool();
  StackInterner interner(*root_.pool());
  std::vector<std::uint32_t> stack;
  made_.reserve(samples.size());
  for (const Sample& sample : samples) {
    stack.assign(sample.locations.begin(), sample.locations.end());
    made_.push_back(interner.node_of(stack));
  }
}

}  // namespace windlass::exporter
