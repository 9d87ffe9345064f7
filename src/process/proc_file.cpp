#include "process/proc_file.h"

#include <cerrno>
#include <charconv>
#include <string_view>

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

std::vector<pid_t> list_ids(const std::string& folder, std::size_t most) {
  std::vector<pid_t> ids;
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) return ids;
  while (const dirent* entry = ::readdir(directory)) {
    pid_t id = 0;
    const std::string_view name = entry->d_name;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data(), end, id).ptr == end && ids.size() < most) ids.push_back(id);
  }
  ::closedir(directory);
  return ids;
}

}  // namespace windlass::process
