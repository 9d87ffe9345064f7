// Files that others shorten while they are mapped here.
#pragma once

namespace windlass::profiler {

// From here on a file that is truncated while it is mapped reads as zeros past its end, in place of a SIGBUS.
// Process-wide.
void survive_truncated_files();

}  // namespace windlass::profiler
