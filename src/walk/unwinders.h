// The unwinders a step asks in order. Each says whether it can; the first that can decides.
#pragma once

#include "code/synthesis.h"
#include "walk/apply.h"
#include "walk/module.h"

namespace windlass::walk {

struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  code::SynthesisScratch* synthesis;
  unsigned backward = 0;  // steps of this walk that moved sp down: switches to another stack
  unsigned still = 0;     // consecutive steps that did not move it
};

// What a step found: the caller in `caller`, or why there is none.
struct Step {
  Registers caller;
  SavedLocations saved;
  FrameOrigin origin = FrameOrigin::kCfi;
  bool signal_frame = false;
  StepStatus status{WalkEnd::kNoRow, {ErrorCode::kNotFound, "no unwinder knows this code"}};
};

// The caller of `frame`, without the check for progress.
void find_caller(const AddressSpace& space, const Frame& frame, const WalkOptions& options, Scratch& scratch,
                 Step& step);

}  // namespace windlass::walk
