// The tree of all samples' stacks, as frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/export/call_tree.h"
#include "profiler/export/children.h"
#include "profiler/export/frames.h"
#include "profiler/export/hash_slots.h"
#include "profiler/export/stack_nodes.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// Finds or adds the nodes of samples: below the root are the paths of Frames::path_of(). Samples that share a node of
// their stacks, and what stands above the stack, share the nodes of the tree, too. So each node of the stacks is
// followed once.
class TreeMaker {
 public:
  // `nodes`: an empty list, of which node 0 becomes the root. A node stands behind its parent.
  TreeMaker(std::vector<TreeNode>& nodes, const profile::Profile& profile, Frames& frames);

  // `number`: of the sample.
  std::uint32_t node_of(std::size_t number, const profile::Sample& sample);
  // What the samples behind this one need is scattered over memory.
  void prefetch(std::size_t number, std::size_t samples) const {
    constexpr std::size_t kAhead = 8;
    if (samples - number <= 2 * kAhead) return;
    __builtin_prefetch(&made_[stacks_.of(number + 2 * kAhead)]);
    if (const Made& made = made_[stacks_.of(number + kAhead)]; made.above != profile::kNone)
      __builtin_prefetch(&nodes_[made.node].self);
  }

 private:
  // The node of the tree that a node of the stacks has below `above`.
  struct Made {
    std::uint32_t above = profile::kNone, stack = 0, node = 0;
  };
  std::uint32_t child_of(std::uint32_t parent, std::uint32_t frame);
  // Most stacks stand below one thread's name.
  [[nodiscard]] std::uint32_t made_of(std::uint32_t above, std::uint32_t stack) const;
  void add_made(const Made& made);

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

}  // namespace windlass::exporter
