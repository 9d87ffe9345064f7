// How many files may be open.
#pragma once

#include <sys/resource.h>

namespace windlass::profiler {

// Raises the process's limit towards its hard one, to at most `most`; never lowers it. The limit then, or 0 if it is
// not known. A recorded command is forked before and keeps its own.
rlim_t raise_descriptor_limit(rlim_t most = 65536);

}  // namespace windlass::profiler
