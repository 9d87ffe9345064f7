#include "process/proc_file.h"

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
    if (got <= 0) break;
  }
  ::close(fd);
  return text;
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
