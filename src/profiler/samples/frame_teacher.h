// Teaches the kernel side how frames of runtimes' code are left, so that later samples need no raw stack
// (windlass_learned_layout.h). Every raw sample that was unwound is a lesson.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>

#include "profiler/processes/process_table.h"
#include "windlass_learned_layout.h"

namespace windlass::profiler {

// One thread only.
class FrameTeacher {
 public:
  // What is taught for a key; it must outlive this.
  using Sink = std::function<void(const wl_learned_key& key, const wl_learned& lesson)>;
  explicit FrameTeacher(Sink sink) : sink_(std::move(sink)) {}

  // The user frames of a sample, as wl_stack_event has them, and `maps` of its time. `space` is that of its event. Each
  // frame but the last has been left. O(frames), with WL_LEARNED_BLOCK_BYTES questions to the runtime for each that is
  // new.
  void teach(std::uint32_t space, const MapSet& maps, std::span<const std::uint64_t> frames, std::uint64_t now);

 private:
  // The kernel side may have dropped a lesson. A frame of it is then in a raw sample again.
  static constexpr std::uint64_t kAgainAfter = 1'000'000'000;  // ns
  static constexpr std::size_t kMaxKnown = std::size_t{1} << 17;

  struct KeyHash {
    std::size_t operator()(const wl_learned_key& key) const {
      return (key.pc ^ (std::uint64_t{key.space} << 40) ^ key.kind) * 0x9e3779b97f4a7c15ull >> 13;
    }
  };
  struct KeyEqual {
    bool operator()(const wl_learned_key& a, const wl_learned_key& b) const {
      return a.pc == b.pc && a.space == b.space && a.kind == b.kind;
    }
  };

  void teach(const wl_learned_key& key, manager::PublishedCode& code);

  Sink sink_;
  std::unordered_map<wl_learned_key, std::uint64_t, KeyHash, KeyEqual> asked_;  // when
};

}  // namespace windlass::profiler
