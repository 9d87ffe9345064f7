// Executable memory of the own process that no module and no code range tells of: what a JIT compiler has made and told
// nobody. The kernel knows.
#pragma once

#include <cstdint>

#include "walk/own_modules.h"

namespace windlass::walk {

// By PROCMAP_QUERY on an open /proc/self/maps (Linux 6.11), kUnknown where the kernel has none.
[[nodiscard]] Executable query_executable(int maps, std::uint64_t address, CodeExtent& extent);
// By reading the text of that file.
[[nodiscard]] Executable scan_executable(int maps, std::uint64_t address, CodeExtent& extent);

}  // namespace windlass::walk
