// One step of a walk: the unwinders are asked in an order, and the first that can decides.
#pragma once

#include "base/grace_period.h"
#include "code/synthesis.h"
#include "walk/apply.h"
#include "walk/module.h"
#include "walk/progress.h"
#include "walk/row_cache.h"

namespace windlass::walk {

struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  code::SynthesisScratch* synthesis;
  RowCache rows;
  Progress progress;         // of this walk
  std::uint64_t lowest = 0;  // that sp can be in the current frame, where it is not known
  GracePeriod::Reader code;  // in while a walker has it: code ranges that it found stay
};

// What a step found: the caller in `caller`, or why there is none.
struct Step {
  Registers caller;
  SavedLocations saved;
  FrameOrigin origin = FrameOrigin::kCfi;
  bool signal_frame = false;
  bool module_known = false;
  const Module* module = nullptr;  // what contains the caller's pc, once looked up
  StepStatus status{WalkEnd::kNoRow, {ErrorCode::kNotFound, "no unwinder knows this code"}};

  const Module* find_module(const AddressSpace& space) {
    if (!module_known) module = space.find(caller.pc().lookup());
    module_known = true;
    return module;
  }
};

// The caller of `frame`, whose pc lies in `module` (null: in none), without the check for progress.
void find_caller(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
                 Scratch& scratch, Step& step);

// AArch64: a thread in rt_sigreturn, which nothing follows, has its pc behind the system call, at whatever code comes
// next. Puts it back on the instruction.
void correct_first_pc(const AddressSpace& space, Registers& registers);

}  // namespace windlass::walk
