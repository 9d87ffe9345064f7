// The unwinders a step asks in order. Each says whether it can; the first that can decides.
#pragma once

#include "base/grace_period.h"
#include "code/synthesis.h"
#include "walk/apply.h"
#include "walk/module.h"
#include "walk/row_cache.h"

namespace windlass::walk {

struct Scratch {
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  code::SynthesisScratch* synthesis;
  RowCache rows;
  GracePeriod::Reader code;  // in while a walker has it: code ranges that it found stay
  unsigned backward = 0;     // steps of this walk that moved sp down: switches to another stack
  unsigned still = 0;        // consecutive steps that did not move it
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

// Can this be a stack pointer at all: aligned, in user space?
[[nodiscard]] constexpr bool is_stack_address(std::uint64_t sp) {
  constexpr unsigned kUserBits = 56;  // x86-64 with five-level paging; AArch64 has 52
  return sp % 8 == 0 && sp >> kUserBits == 0;
}

// Is the return address where no callee puts it? glibc's _dl_runtime_resolve on AArch64, whose CFA leaves out what the
// linkage table pushed. The code knows better.
[[nodiscard]] bool return_address_outside(const FrameRow& row);

// The caller of `frame`, whose pc lies in `module` (null: in none), without the check for progress.
void find_caller(const AddressSpace& space, const Frame& frame, const Module* module, const WalkOptions& options,
                 Scratch& scratch, Step& step);

}  // namespace windlass::walk
