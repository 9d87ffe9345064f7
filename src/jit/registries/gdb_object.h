// An object file in memory for GDB's JIT interface.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "jit/registries/batch.h"

namespace windlass::registries {

// ELF64 with a section .text for each run (without bytes: the code is in the process), .eh_frame, .symtab, and DWARF
// lines where functions have some. kLimit: of more than 4 GiB or 65,000 runs.
[[nodiscard]] Expected<std::vector<std::byte>> make_object(std::span<const Function> functions,
                                                           std::span<const Run> runs);

}  // namespace windlass::registries
