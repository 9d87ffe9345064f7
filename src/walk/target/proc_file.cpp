#include "walk/target/proc_file.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace windlass::walk {

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

}  // namespace windlass::walk
