// Registers from the CONTEXT structures of minidumps.
#pragma once

#include "windlass/bytes.h"
#include "windlass/registers.h"

namespace windlass::walk {

// CONTEXT_AMD64 (winnt.h), CONTEXT_ARM64 (the same, and Breakpad's own layout from before there was one). Registers
// that its flags leave out stay unknown. kTruncated; kMalformed if it is of another machine.
[[nodiscard]] Expected<Registers> context_registers(Architecture architecture, ByteView context);

}  // namespace windlass::walk
