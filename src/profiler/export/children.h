// The children of a tree's nodes, by their labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "profiler/export/hash_slots.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

// Node 0 is the root. Most nodes of a large tree have one child, which mostly is the next node. So it is looked at
// itself, and the children of other nodes alone are in a table. Four bytes a node, and 16 of a child with siblings.
class Children {
 public:
  struct Key {
    std::uint32_t parent = 0, label = 0;
    bool operator==(const Key&) const = default;
  };

  // profile::kNone: there is none. key_of(node): of any child that was added.
  template <typename KeyOf>
  [[nodiscard]] std::uint32_t find(Key key, KeyOf key_of) const {
    const std::uint32_t first = first_[key.parent];
    if (first == profile::kNone) return first;
    if (first != kSeveral) return key_of(first).label == key.label ? first : profile::kNone;
    return several_.find(hash(key), [&](std::uint32_t child) { return key_of(child) == key; });
  }
  // Starts to load what find() of this key will look at.
  void prefetch(Key key) const {
    __builtin_prefetch(&first_[key.parent]);
    several_.prefetch(hash(key));
  }
  // One that is not there. Nodes are added in the order of their numbers. Those that are left out have no children.
  template <typename KeyOf>
  void add(std::uint32_t child, KeyOf key_of) {
    first_.resize(std::size_t{child} + 1, profile::kNone);
    const auto hash_of = [&](std::uint32_t node) { return hash(key_of(node)); };
    std::uint32_t& first = first_[key_of(child).parent];
    if (first == profile::kNone) {
      first = child;
      return;
    }
    if (first != kSeveral) several_.add(std::exchange(first, kSeveral), hash_of);
    several_.add(child, hash_of);
  }

 private:
  static constexpr std::uint32_t kSeveral = profile::kNone - 1;
  static std::uint64_t hash(Key key) { return hash_of_pair(key.parent, key.label); }

  std::vector<std::uint32_t> first_{profile::kNone};  // of each node: its only child
  HashSlots several_;
};

}  // namespace windlass::exporter
