// The mappings of a process that a core file is of, as /proc/PID/maps would have told them.
#pragma once

#include <string>
#include <vector>

#include "formats/image/core.h"
#include "os/proc_maps.h"
#include "windlass/walk.h"

namespace windlass::walk {

// The mappings of NT_FILE. Without NT_FILE, those of the dynamic linker's list, to which AT_PHDR, DT_DEBUG and r_debug
// lead. Anonymous code may fill a hole between two parts of an ELF file where the file's headers have code. It then
// counts as the file's: the program has moved its code to huge pages. Ascending.
[[nodiscard]] std::vector<os::ProcMap> maps_of(const image::CoreFile& core, const Memory& memory);

// The path of the program itself: the file mapped around its entry point. Empty: nothing says.
[[nodiscard]] std::string program_of(const image::CoreFile& core, const std::vector<os::ProcMap>& maps);

}  // namespace windlass::walk
