// The mappings of a process that a core file is of, as /proc/PID/maps would have told them.
#pragma once

#include <string>
#include <vector>

#include "formats/image/core.h"
#include "os/proc_maps.h"
#include "windlass/walk.h"

namespace windlass::walk {

// By NT_FILE; where there is none, by the list of the dynamic linker, which AT_PHDR, DT_DEBUG and r_debug lead to. Code
// in no file that fills a hole between two parts of an ELF file, where the file's headers put code, is the file's: its
// program has moved it to huge pages. Ascending.
[[nodiscard]] std::vector<os::ProcMap> maps_of(const image::CoreFile& core, const Memory& memory);

// The path of the program itself: the file mapped around its entry point. Empty: nothing says.
[[nodiscard]] std::string program_of(const image::CoreFile& core, const std::vector<os::ProcMap>& maps);

}  // namespace windlass::walk
