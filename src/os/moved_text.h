// A file's code that its program has moved to anonymous memory, where huge pages can be had: node --use-largepages,
// BOLT's -hugify, HHVM. The new mapping lies where the file's was and holds what the file holds, but has no name.
#pragma once

#include <sys/types.h>

#include <vector>

#include "os/proc_maps.h"

namespace windlass::os {

// Gives such mappings of a live process their file, with path and offset. They fill a hole between two mappings of one
// ELF file to the byte, and pages spread over them are compared with the file. `maps` ascending; `parent` as files_of()
// wants it. Nothing is read where there is no such hole. Linear in `maps`.
void name_moved_text(pid_t pid, pid_t parent, std::vector<ProcMap>& maps);

}  // namespace windlass::os
