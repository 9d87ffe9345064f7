// The stacks of a process as `walk` collects them, and the names of their frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windlass/symbols.h"
#include "windlass/target.h"

namespace windlass::cli {

struct FrameEntry {
  Registers registers;
  FrameOrigin origin = FrameOrigin::kContext;
  bool signal_frame = false;
  FrameCertainty certainty = FrameCertainty::kDescribed;
  std::uint32_t address = 0;  // in ThreadStacks::addresses
};

struct ThreadStack {
  const Thread* thread = nullptr;
  std::vector<FrameEntry> frames;
  WalkEnd end = WalkEnd::kComplete;
  Error error;
};

struct ThreadStacks {
  std::vector<ThreadStack> threads;
  std::vector<CodeAddress> addresses;    // that frames have, each once
  std::vector<std::uint64_t> functions;  // Frame::function of each
};

// Walks every thread, innermost frame first, at most `max_frames` each.
ThreadStacks walk_all(const Target& target, std::size_t max_frames);

}  // namespace windlass::cli
