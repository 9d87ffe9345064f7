// An object file in memory for GDB's JIT interface.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "jit/registries/batch.h"

namespace windlass::registries {

// An object of ELF64 with .eh_frame, .symtab, and a section .text for each run, without bytes, since the code is in the
// process. DWARF lines are there if functions have lines. kLimit: more than 4 GiB or 65,000 runs.
[[nodiscard]] Expected<std::vector<std::byte>> make_object(std::span<const Function> functions,
                                                           std::span<const Run> runs);

}  // namespace windlass::registries
