#include "walk/target/equal_stacks.h"

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace windlass::walk {
namespace {

using FrameKey = std::tuple<std::uint32_t, FrameOrigin, FrameCertainty, bool>;
using StackKey = std::tuple<std::vector<FrameKey>, WalkEnd, std::string_view, std::uint64_t, bool>;

StackKey key_of(const ThreadStack& stack) {
  std::vector<FrameKey> frames;
  frames.reserve(stack.frames.size());
  for (const FrameEntry& frame : stack.frames)
    frames.emplace_back(frame.address, frame.origin, frame.certainty, frame.signal_frame);
  // What an unfinished walk says of its end is the place of the stack, which no two threads share.
  return {std::move(frames), stack.end, stack.error.what, stack.error.detail, stack.thread->kernel_only};
}

}  // namespace

std::vector<std::vector<std::size_t>> equal_stacks(std::span<const ThreadStack> stacks) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<StackKey, std::size_t> known;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (!stacks[i].thread->faulted) {
      const auto [group, is_new] = known.try_emplace(key_of(stacks[i]), groups.size());
      if (!is_new) {
        groups[group->second].push_back(i);
        continue;
      }
    }
    groups.push_back({i});
  }
  return groups;
}

std::string id_ranges(std::span<const std::uint64_t> ids, std::size_t most) {
  std::string text;
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < ids.size();) {
    if (ranges++ == most) return text + ", " + std::to_string(ids.size() - i) + " more";
    std::size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ids[i]);
    if (last > i) text += "-" + std::to_string(ids[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace windlass::walk
