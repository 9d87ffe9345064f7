#include "process/proc_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace windlass::process {

std::string read_proc_file(const std::string& path, std::size_t limit) {
  constexpr std::size_t kPiece = 16384;
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  while (text.size() < limit) {
    const std::size_t had = text.size();
    text.resize(had + kPiece);
    ssize_t got = 0;
    do got = ::read(fd, text.data() + had, kPiece);
    while (got < 0 && errno == EINTR);
    text.resize(had + static_cast<std::size_t>(got > 0 ? got : 0));
    if (got == 0) break;
    if (got < 0) {
      text.clear();
      break;
    }
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return text;
}

std::string_view status_field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(":\t")) return line.substr(name.size() + 2);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return {};
}

std::vector<pid_t> list_ids(const std::string& folder, std::size_t most) {
  std::vector<pid_t> ids;
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) return ids;
  while (const dirent* entry = ::readdir(directory)) {
    pid_t id = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, id).ptr == end && ids.size() < most) ids.push_back(id);
  }
  ::closedir(directory);
  return ids;
}

}  // namespace windlass::process
