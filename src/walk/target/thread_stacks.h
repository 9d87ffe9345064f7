// The stacks of a target, with each address that is to be named once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "windlass/target.h"

namespace windlass::walk {

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
  std::vector<Error> problems;           // of interpreters that run functions of these stacks
};

// Walks every thread, innermost frame first, at most `max_frames` each.
ThreadStacks walk_all(const Target& target, std::size_t max_frames);

// The vector registers of a thread of a process that stands still, as StackPlace takes them. Empty: not known.
[[nodiscard]] std::vector<std::byte> vector_registers(const Target& target, const Thread& thread);

// This thread's registers in the caller of the function on the stack whose CFA is given.
[[nodiscard]] Registers caller_of(const void* cfa);

}  // namespace windlass::walk
