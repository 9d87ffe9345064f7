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

// The same for a path of Windows ("C:\Windows\System32\x.dll"), names compared without case. Below the sysroot: the
// path without its drive, and behind "drive_c" (a prefix of Wine); NAME/TIMESTAMPSIZE/NAME (a symbol store); the name
// alone. Drive Z is Wine's name of this machine's root. Reads directories.
[[nodiscard]] std::vector<FileCandidate> search_windows_files(const FileSearch& search, const std::string& path,
                                                              std::uint32_t timestamp, std::uint32_t image_size,
                                                              bool is_program);

}  // namespace windlass::walk
