// The ELF images that a dynamic linker has loaded, by its own list: for a dump that does not say what was mapped.
#pragma once

#include <vector>

#include "formats/image/core.h"
#include "os/proc_maps.h"
#include "windlass/walk.h"

namespace windlass::walk {

// Mappings for the PT_LOADs of the program, its dynamic linker and what that has loaded, by their headers in memory.
// Ascending; empty where AT_PHDR does not lead to an ELF header. A program that was started by a relative path is named
// as if that were relative to the root. Bounds: 4,096 images, paths of 4 KiB.
[[nodiscard]] std::vector<os::ProcMap> maps_of_link_map(const image::CoreFile& core, const Memory& memory);

}  // namespace windlass::walk
