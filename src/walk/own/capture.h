// The registers that windlass_capture stores. Each system has its own windlass_capture.
#pragma once

#include <cstdint>

namespace windlass::walk {

// A bit for each slot of `Registers` that it fills because the system's calls preserve the register. The stack
// pointer's and the pc's are filled besides.
[[nodiscard]] std::uint64_t preserved_slots();

}  // namespace windlass::walk
