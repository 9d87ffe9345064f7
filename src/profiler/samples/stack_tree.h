// Stacks as a tree of frames: a node is a frame and what called it, so that stacks share the frames of their callers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "profiler/samples/mix.h"
#include "profiler/samples/number_table.h"

namespace windlass::profiler {

class StackTree {
 public:
  static constexpr std::uint32_t kEmpty = 0;  // the stack without frames

  // The stack in which `frame` stands on top of `caller`. Nothing if there would be more than `most` nodes.
  std::optional<std::uint32_t> push(std::uint32_t caller, std::uint32_t frame, std::size_t most) {
    const Node node{caller, frame};
    if (const auto known = numbers_.find(hash(node), [&](std::uint32_t i) { return nodes_[i] == node; })) return known;
    if (nodes_.size() >= most) return std::nullopt;
    nodes_.push_back(node);
    const auto number = static_cast<std::uint32_t>(nodes_.size() - 1);
    numbers_.add(number, [this](std::uint32_t i) { return hash(nodes_[i]); });
    return number;
  }
  // The innermost frame, and the stack of its caller. Not of kEmpty.
  [[nodiscard]] std::uint32_t frame(std::uint32_t stack) const { return nodes_[stack].frame; }
  [[nodiscard]] std::uint32_t caller(std::uint32_t stack) const { return nodes_[stack].caller; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    std::uint32_t caller, frame;
    bool operator==(const Node&) const = default;
  };
  static std::uint64_t hash(const Node& node) { return mix(node.caller, node.frame) >> 16; }

  std::deque<Node> nodes_{Node{}};  // the first is kEmpty. A vector would need the memory of two when it grows
  NumberTable numbers_;
};

}  // namespace windlass::profiler
