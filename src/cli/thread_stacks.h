// The stacks of a process as `walk` collects them, and the names of their frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/profile.h"
#include "windlass/target.h"

namespace windlass::cli {

struct FrameEntry {
  Registers registers;
  FrameOrigin origin = FrameOrigin::kContext;
  bool signal_frame = false;
  std::uint32_t location = 0;  // in ThreadStacks::names
};

struct ThreadStack {
  const Thread* thread = nullptr;
  std::vector<FrameEntry> frames;
  WalkEnd end = WalkEnd::kComplete;
  Error error;
};

struct NameOptions {
  bool lines = false;    // file and line
  bool inlines = false;  // inlined functions
  std::string debug_directory;
};

struct ThreadStacks {
  std::vector<ThreadStack> threads;
  // Locations: one a distinct code address; modules: those that have frames. Filled by name_frames.
  profile::Profile names;
  std::vector<int> files;  // descriptors of the modules' files, so that they outlive the process

  ThreadStacks() = default;
  ThreadStacks(ThreadStacks&&) = default;
  ~ThreadStacks();
};

// Walks every thread, innermost frame first, at most `max_frames` each.
ThreadStacks walk_all(const Target& target, std::size_t max_frames);

// Finds functions for all frames; the process may run again by then.
void name_frames(ThreadStacks& walked, const NameOptions& options);

}  // namespace windlass::cli
