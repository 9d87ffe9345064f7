// Where the file behind a mapping of a dump may be on this machine.
#pragma once

#include <string>
#include <vector>

#include "walk/target/modules.h"
#include "windlass/target.h"

namespace windlass::walk {

// In order: `executable` for the program itself, below the sysroot by path and by name alone, the path itself, the
// debug directories by build id.
[[nodiscard]] std::vector<FileCandidate> search_files(const FileSearch& search, const std::string& path,
                                                      const std::string& build_id, bool is_program);

}  // namespace windlass::walk
