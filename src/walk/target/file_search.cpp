#include "walk/target/file_search.h"

#include <fmt/format.h>

namespace windlass::walk {

std::vector<FileCandidate> search_files(const FileSearch& search, const std::string& path, const std::string& build_id,
                                        bool is_program) {
  std::vector<FileCandidate> files;
  if (is_program && !search.executable.empty()) files.push_back({search.executable, false, 0});
  if (!search.sysroot.empty()) {
    files.push_back({fmt::format("{}/{}", search.sysroot, path), false, 0});
    files.push_back({fmt::format("{}/{}", search.sysroot, path.substr(path.rfind('/') + 1)), false, 0});
  }
  if (path.starts_with('/')) files.push_back({path, false, 0});
  if (build_id.size() > 2)
    for (const std::string& root : search.debug_directories)
      files.push_back({fmt::format("{}/.build-id/{}/{}", root, build_id.substr(0, 2), build_id.substr(2)), false, 0});
  return files;
}

}  // namespace windlass::walk
