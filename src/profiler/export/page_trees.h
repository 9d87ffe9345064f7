// The trees that the HTML page draws: whole profiles cut down to so many nodes, the widest ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/export/call_tree.h"

namespace windlass::exporter {

struct PageNode {
  std::uint32_t frame = profile::kNone;  // of the root
  std::uint32_t parent = 0;              // its place, before this one
  std::uint64_t total = 0;
  std::uint64_t self = 0;
};
struct PageTree {
  std::vector<PageNode> nodes;  // the root first
  std::uint64_t below = 1;      // of a call tree: nodes of fewer samples are left out
};

// Callers above callees. In preorder, children by descending total.
[[nodiscard]] PageTree call_page_tree(const CallTree& tree, std::size_t max_nodes);

// The tree of callers: running functions first, their callers below. Every path that ends in own samples is entered
// from its end, and equal beginnings are merged. Uses all nodes of the call tree, however few are drawn. Functions, up
// to half of the nodes, come before callers; then the widest nodes come first. O(nodes x depth) at worst; a branch that
// is left out is not followed.
[[nodiscard]] PageTree callers_page_tree(const CallTree& tree, std::size_t max_nodes);

}  // namespace windlass::exporter
