// Lines as DWARF, for debuggers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "jit/registries/batch.h"

namespace windlass::registries {

// DWARF 4: a compilation unit for each function that has lines. Empty where none has.
struct DebugLines {
  std::vector<std::byte> abbreviations;  // .debug_abbrev
  std::vector<std::byte> info;           // .debug_info
  std::vector<std::byte> lines;          // .debug_line
};
[[nodiscard]] DebugLines debug_lines_of(std::span<const Function> functions);

}  // namespace windlass::registries
