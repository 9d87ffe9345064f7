#include "os/text_lines.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "os/descriptor.h"
#include "os/mapped_files.h"

namespace windlass::os {

bool for_each_line(const std::string& path, std::string& note, const std::function<bool(std::string_view)>& line) {
  constexpr std::size_t kLongestLine = 64 * 1024, kPiece = 256 * 1024;
  const Descriptor file(open_regular(path));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    note = fmt::format("{}: {}", path, !file ? std::strerror(errno) : "not a regular file");
    return false;
  }
  std::string buffer;
  std::vector<char> piece(kPiece);
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    buffer.append(piece.data(), static_cast<std::size_t>(got));
    std::size_t start = 0;
    for (std::size_t end; (end = buffer.find('\n', start)) != std::string::npos; start = end + 1)
      if (!line(std::string_view(buffer).substr(start, end - start))) return true;
    buffer.erase(0, start);
    if (buffer.size() > kLongestLine) buffer.clear();  // no line is that long: not such a file
  }
}

}  // namespace windlass::os
