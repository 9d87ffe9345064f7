#include "walk/target/file_search.h"

#include <dirent.h>
#include <strings.h>
#include <unistd.h>

#include <cctype>
#include <memory>
#include <string_view>

#include <fmt/format.h>

namespace windlass::walk {
namespace {

// The entry of `directory` with that name, whatever its case; empty: none.
std::string entry_of(const std::string& directory, const std::string& name) {
  if (::access((directory + '/' + name).c_str(), F_OK) == 0) return directory + '/' + name;
  DIR* entries = ::opendir((directory + '/').c_str());
  std::string found;
  for (const dirent* entry; entries != nullptr && found.empty() && (entry = ::readdir(entries)) != nullptr;)
    if (::strcasecmp(entry->d_name, name.c_str()) == 0) found = directory + '/' + entry->d_name;
  if (entries != nullptr) ::closedir(entries);
  return found;
}

// `path`, separated by '\' or '/', below the directory `at` ("" is the root); empty: there is none.
std::string find_below(std::string at, std::string_view path) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find_first_of("\\/"), path.size());
    const std::string name(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    if (name.empty()) continue;
    if (name == ".." || (at = entry_of(at, name)).empty()) return {};
  }
  return at;
}

}  // namespace

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

std::vector<FileCandidate> search_windows_files(const FileSearch& search, const std::string& path,
                                                std::uint32_t timestamp, std::uint32_t image_size, bool is_program) {
  std::vector<FileCandidate> files;
  const auto add = [&](const std::string& found) {
    if (!found.empty()) files.push_back({found, false, 0});
  };
  std::string_view rest = path;
  char drive = 0;
  if (rest.size() > 1 && rest[1] == ':') {
    drive = static_cast<char>(std::tolower(static_cast<unsigned char>(rest[0])));
    rest.remove_prefix(2);
  }
  const std::string name = path.substr(path.find_last_of("\\/:") + 1);
  const std::string in_store = fmt::format("{}/{:08X}{:x}/{}", name, timestamp, image_size, name);
  if (is_program) add(search.executable);
  if (!search.sysroot.empty() && !name.empty()) {
    if (drive != 0) add(find_below(search.sysroot, fmt::format("drive_{}/{}", drive, rest)));
    add(find_below(search.sysroot, rest));
    add(find_below(search.sysroot, in_store));
    add(find_below(search.sysroot, name));
  }
  for (const std::string& root : search.debug_directories)
    if (!name.empty()) add(find_below(root, in_store));
  if (drive == 'z') add(find_below("", rest));
  return files;
}

}  // namespace windlass::walk
