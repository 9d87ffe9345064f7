#include "profiler/export/tree_maker.h"

namespace windlass::exporter {

using profile::kNone;

TreeMaker::TreeMaker(std::vector<TreeNode>& nodes, const profile::Profile& profile, Frames& frames)
    : nodes_(nodes), frames_(frames), stacks_(profile), made_(stacks_.nodes().size()) {
  nodes_.reserve(made_.size());
  nodes_.emplace_back();
}

std::uint32_t TreeMaker::node_of(std::size_t number, const profile::Sample& sample) {
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

std::uint32_t TreeMaker::child_of(std::uint32_t parent, std::uint32_t frame) {
  const auto key_of = [this](std::uint32_t node) { return Children::Key{nodes_[node].parent, nodes_[node].frame}; };
  const std::uint32_t known = children_.find({parent, frame}, key_of);
  if (known != kNone) return known;
  const auto child = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({.frame = frame, .parent = parent, .next_sibling = nodes_[parent].first_child});
  nodes_[parent].first_child = child;
  children_.add(child, key_of);
  return child;
}

std::uint32_t TreeMaker::made_of(std::uint32_t above, std::uint32_t stack) const {
  if (made_[stack].above == above) return made_[stack].node;
  const std::uint32_t other = others_.find(hash_of_pair(above, stack), [&](std::uint32_t number) {
    return more_[number].above == above && more_[number].stack == stack;
  });
  return other != kNone ? more_[other].node : kNone;
}

void TreeMaker::add_made(const Made& made) {
  if (made_[made.stack].above == kNone) {
    made_[made.stack] = made;
    return;
  }
  more_.push_back(made);
  others_.add(static_cast<std::uint32_t>(more_.size() - 1),
              [&](std::uint32_t number) { return hash_of_pair(more_[number].above, more_[number].stack); });
}

}  // namespace windlass::exporter
