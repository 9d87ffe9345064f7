// Stacks that share their outer locations, beside lists of locations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "profiler/export/call_tree.h"
#include "profiler/export/hash_slots.h"
#include "profiler/export/stack_nodes.h"
#include "profiler/export/stacks.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {
namespace {

using profile::Stack;
using Ids = std::vector<std::uint32_t>;

// Locations 10 to 10 + size, the outermost one first.
Stack pooled(std::uint32_t size) {
  const Stack root = Stack::in_new_pool();
  std::uint32_t node = 0;
  for (std::uint32_t i = 0; i < size; ++i) node = root.pool()->push(node, 10 + i);
  return root.at_node(node, size);
}

TEST(Stack, ReadsAlikeInBothForms) {
  const Stack shared = pooled(3), list{12, 11, 10};
  ASSERT_NE(shared.pool(), nullptr);
  ASSERT_EQ(list.pool(), nullptr);
  EXPECT_EQ(shared, list);
  for (const Stack& stack : {shared, list}) {
    EXPECT_EQ(stack.size(), 3u);
    EXPECT_EQ(stack.front(), 12u);
    EXPECT_EQ(stack[1], 11u);
    EXPECT_EQ(stack.back(), 10u);
    EXPECT_EQ(Ids(stack), (Ids{12, 11, 10}));
  }
  EXPECT_NE(shared, (Stack{12, 11}));
  EXPECT_NE(shared, (Stack{12, 11, 9}));
  EXPECT_TRUE(pooled(0).empty());
  EXPECT_EQ(pooled(0), Stack());
}

// Each change is made to a copy, and beside it to a vector.
TEST(Stack, ChangesItsOwnLocationsOnly) {
  const auto check = [](auto change) {
    for (const Stack& before : {pooled(5), Stack{14, 13, 12, 11, 10}}) {
      Stack stack = before;
      Ids ids = before;
      change(stack);
      change(ids);
      EXPECT_EQ(Ids(std::as_const(stack)), ids);
      EXPECT_EQ(Ids(before), (Ids{14, 13, 12, 11, 10}));
    }
  };
  check([](auto& of) { of.push_back(7); });
  check([](auto& of) { of.pop_back(); });
  check([](auto& of) { of.clear(); });
  check([](auto& of) { of.resize(9); });
  check([](auto& of) { of.resize(2); });
  check([](auto& of) { of.erase(of.begin() + 1); });
  check([](auto& of) { of.erase(of.begin() + 1, of.begin() + 4); });
  check([](auto& of) { of.assign(7, 3); });
  check([](auto& of) { of.back() = of.front() = of[2] = 1; });
  check([](auto& of) {
    for (auto& one : of) ++one;
  });
  check([](auto& of) {
    for (std::uint32_t i = 0; i < 100; ++i) of.push_back(i);
  });
}

TEST(Stack, KeepsItsPool) {
  profile::Sample kept;
  {
    profile::Profile profile;
    profile.samples.push_back({.locations = pooled(4), .count = 1});
    const profile::Profile copy = profile;
    profile.samples.clear();
    kept = copy.samples.front();
  }
  EXPECT_NE(kept.locations.pool(), nullptr);
  EXPECT_EQ(Ids(std::as_const(kept.locations)), (Ids{13, 12, 11, 10}));
  Stack& alias = kept.locations;
  kept.locations = alias;
  Stack moved = std::move(kept.locations);
  EXPECT_EQ(moved.size(), 4u);
}

// Random stacks of few locations, as many are equal, or begin as others do.
std::vector<Ids> random_stacks(std::size_t number) {
  std::mt19937 random(7);
  std::vector<Ids> all;
  for (std::size_t i = 0; i < number; ++i) {
    Ids& stack = all.emplace_back();
    for (auto depth = random() % 12; depth > 0; --depth) stack.push_back(static_cast<std::uint32_t>(random() % 3));
  }
  return all;
}

TEST(StackInterner, HasEachOuterPartOnce) {
  const Stack root = Stack::in_new_pool();
  StackInterner interner(*root.pool());
  std::map<Ids, std::uint32_t> nodes;
  std::map<Ids, bool> parts;
  for (const Ids& stack : random_stacks(5000)) {
    const std::uint32_t node = interner.node_of(stack);
    EXPECT_EQ(Ids(root.at_node(node, static_cast<std::uint32_t>(stack.size()))), stack);
    EXPECT_EQ(nodes.try_emplace(stack, node).first->second, node);
    for (std::size_t i = 0; i <= stack.size(); ++i)
      parts[Ids(stack.begin() + static_cast<std::ptrdiff_t>(i), stack.end())] = true;
  }
  EXPECT_EQ(root.pool()->nodes().size(), parts.size());
}

// The profile's samples: as lists, of one pool, of two, and of both kinds.
std::vector<profile::Profile> profiles_of_all_forms() {
  profile::Profile lists;
  lists.events.front().period = 1;
  lists.strings = {"a", "b"};
  for (std::uint32_t i = 0; i < 3; ++i) lists.locations.push_back({.address = i + 1});
  std::uint32_t i = 0;
  for (const Ids& stack : random_stacks(3000)) {
    lists.samples.push_back({.locations = stack, .count = ++i % 5, .pid = 1, .tid = 1, .comm = i % 2});
    if (i % 7 == 0) lists.samples.back().end = WL_END_NO_ROW;
  }
  std::vector<profile::Profile> all(4, lists);
  for (std::size_t form = 1; form < all.size(); ++form) {
    const Stack roots[] = {Stack::in_new_pool(), Stack::in_new_pool()};
    StackInterner interners[] = {StackInterner(*roots[0].pool()), StackInterner(*roots[1].pool())};
    for (std::size_t at = 0; at < lists.samples.size(); ++at) {
      const std::size_t pool = form == 2 ? at % 2 : 0;
      if (form == 3 && at % 3 == 0) continue;
      const Ids stack = lists.samples[at].locations;
      all[form].samples[at].locations =
          roots[pool].at_node(interners[pool].node_of(stack), static_cast<std::uint32_t>(stack.size()));
    }
  }
  return all;
}

TEST(DistinctStacks, AreTheSameInAllForms) {
  for (const profile::Profile& profile : profiles_of_all_forms()) {
    const StackNodes nodes(profile);
    for (std::size_t at = 0; at < profile.samples.size(); ++at)
      ASSERT_EQ(nodes.of(profile.samples[at]), nodes.of(at)) << "by itself or by its number";
    DistinctStacks distinct(profile, nodes, shown_by_default(profile));
    distinct.add_all(profile.samples);
    using Key = std::tuple<std::uint32_t, std::uint8_t, Ids>;
    std::map<Key, std::uint64_t> wanted, found;
    for (const profile::Sample& sample : profile.samples)
      if (sample.count != 0) wanted[{sample.comm, sample.end, sample.locations}] += sample.count;
    for (const auto& stack : distinct.stacks())
      found[{stack.sample->comm, stack.sample->end, stack.sample->locations}] += stack.weight;
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(distinct.stacks().size(), wanted.size());
  }
}

// Parents and labels of a tree are small numbers: with one hash for many pairs, a look-up reads the memory of many.
TEST(HashSlots, DifferentPairsHaveDifferentHashes) {
  std::set<std::uint64_t> hashes;
  for (std::uint32_t a = 0; a < 256; ++a)
    for (std::uint32_t b = 0; b < 256; ++b) hashes.insert(hash_of_pair(a, b));
  EXPECT_EQ(hashes.size(), 256u * 256u);
}

TEST(CallTree, IsTheSameInAllForms) {
  for (const profile::Profile& profile : profiles_of_all_forms()) {
    Frames frames(profile);
    const CallTree tree(profile, frames);
    std::map<Ids, std::uint64_t> self, found;
    std::vector<FunctionCount> functions(frames.size());
    Ids path;
    for (const profile::Sample& sample : profile.samples) {
      if (sample.count == 0) continue;
      frames.path_of(sample, path);
      self[path] += sample.count;
      functions[path.back()].self += sample.count;
      std::ranges::sort(path);
      path.erase(std::ranges::unique(path).begin(), path.end());
      for (const std::uint32_t frame : path) functions[frame].total += sample.count;
    }
    for (const TreeNode& node : tree.nodes()) {
      if (node.self == 0) continue;
      path.clear();
      for (const TreeNode* at = &node; at->parent != profile::kNone; at = &tree.nodes()[at->parent])
        path.insert(path.begin(), at->frame);
      found[path] += node.self;
    }
    EXPECT_EQ(found, self);
    for (std::uint32_t frame = 0; frame < frames.size(); ++frame) {
      EXPECT_EQ(tree.functions()[frame].self, functions[frame].self) << frame;
      EXPECT_EQ(tree.functions()[frame].total, functions[frame].total) << frame;
    }
  }
}

}  // namespace
}  // namespace windlass::exporter
