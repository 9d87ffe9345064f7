// The words that the kernel side takes along of frames of managed runtimes, given to those that can tell by them what
// runs in a frame (windlass_learned_layout.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/samples/frame_teacher.h"
#include "profiler/samples/window_cache.h"

namespace windlass::profiler {

// One thread only.
class TakenWords {
 public:
  // A stack event's parts.
  struct Stack {
    std::uint64_t time = 0;  // CLOCK_MONOTONIC, ns
    std::span<const std::uint64_t> frames, words;
  };
  // The Frame::function of each frame as far as it has one; of the others 0. Words that mean a function now mean it as
  // long as the kernel side takes stacks with these words for the same. `teacher` has taught their frames. What
  // contradicts itself is left out.
  [[nodiscard]] std::vector<std::uint64_t> functions(const Stack& stack, const FrameTeacher::Pupil& process,
                                                     FrameTeacher& teacher);

 private:
  [[nodiscard]] std::uint64_t function_of(std::uint64_t time, std::uint64_t frame, std::span<const std::uint64_t> words,
                                          const FrameTeacher::Pupil& process, FrameTeacher& teacher);

  WindowCache<std::uint64_t> known_;  // by all that tells frames apart
};

}  // namespace windlass::profiler
