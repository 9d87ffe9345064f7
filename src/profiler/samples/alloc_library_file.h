// The file that the dynamic linker of recorded programs loads libwindlass_alloc.so from.
#pragma once

#include <expected>
#include <string>

#include "profiler/doctor/system_error.h"

namespace windlass::profiler {

// Its path. The file stays: programs go on starting others with this path in LD_PRELOAD when the recording has ended,
// and nobody else may get a name that root's programs load. So it stands below folders that only this user and root can
// write: /var/cache/windlass for root, else $XDG_CACHE_HOME/windlass or ~/.cache/windlass. Written once for each
// library; takes two reads of the file else.
[[nodiscard]] std::expected<std::string, SystemError> alloc_library_file();

// The same below another folder, which is made if it is missing.
[[nodiscard]] std::expected<std::string, SystemError> alloc_library_file_in(const std::string& folder);

}  // namespace windlass::profiler
