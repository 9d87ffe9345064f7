// Frames of ARM64EC code, found by the unwind information for ARM64 in an image whose header says x64. A thread has one
// set of registers for both kinds of code: each register of x64 is a register of ARM64EC under another name. Source:
// "Overview of ARM64EC ABI conventions" (Microsoft), winnt.h (ARM64EC_NT_CONTEXT).
#pragma once

#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

// The register of ARM64 that holds a register of x64, both by DWARF number. `x64`: 0-16, or mm0.
[[nodiscard]] RegisterNumber ec_register(RegisterNumber x64);

// Unwinds a frame of ARM64EC code. `arm64` is the source of the image's second function table. `callee` and `caller`
// have registers of x64. mm0 is lr, and is known at an interrupted instruction alone. Without it a function that has
// not saved lr, for example a leaf, fails with kNotFound. Other errors: as UnwindSource::unwind. No allocation;
// signal-safe if the memory is.
[[nodiscard]] Expected<HandlerCall> unwind_ec(const UnwindSource& arm64, const Callee& callee, Registers& caller,
                                              SavedLocations& saved);

}  // namespace windlass::sources
