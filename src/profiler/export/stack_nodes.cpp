#include "profiler/export/stack_nodes.h"

#include <algorithm>

namespace windlass::exporter {

using profile::Sample;

namespace {

// The key of any node of the pool.
auto keys_of(const profile::StackPool& pool) {
  return [&pool](std::uint32_t node) {
    const profile::StackPool::Node& one = pool.nodes()[node];
    return Children::Key{one.caller, one.location};
  };
}

}  // namespace

std::uint32_t StackInterner::find(std::uint32_t node, std::uint32_t location) const {
  return children_.find({node, location}, keys_of(pool_));
}

std::uint32_t StackInterner::add(std::uint32_t node, std::uint32_t location) {
  const std::uint32_t child = pool_.push(node, location);
  children_.add(child, keys_of(pool_));
  return child;
}

std::uint32_t StackInterner::node_of(std::span<const std::uint32_t> stack) {
  std::uint32_t node = 0;
  std::size_t left = stack.size();
  for (; left != 0; --left) {
    const std::uint32_t known = find(node, stack[left - 1]);
    if (known == profile::kNone) break;
    node = known;
  }
  for (; left != 0; --left) node = add(node, stack[left - 1]);
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
