// Executable memory of the own process in no module and no code range: code of a JIT compiler that was never
// registered. The kernel knows its extent.
#pragma once

#include <cstdint>

#include "walk/own_modules.h"

namespace windlass::walk {

// By PROCMAP_QUERY on an open /proc/self/maps (Linux 6.11), kUnknown where the kernel has none.
[[nodiscard]] Executable query_executable(int maps, std::uint64_t address, CodeExtent& extent);
// By reading the text of that file.
[[nodiscard]] Executable scan_executable(int maps, std::uint64_t address, CodeExtent& extent);

}  // namespace windlass::walk
