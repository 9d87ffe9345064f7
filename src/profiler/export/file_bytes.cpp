#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "profiler/export/pprof.h"

namespace windlass::exporter {

namespace {

Expected<std::vector<std::byte>> read_descriptor(int fd, std::uint64_t max_bytes) {
  std::vector<std::byte> bytes;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
    bytes.reserve(std::min(static_cast<std::uint64_t>(status.st_size), max_bytes) + 1);
  for (std::size_t used = 0;;) {
    if (used == bytes.size()) bytes.resize(std::max<std::size_t>({bytes.capacity(), used + used / 2, 64 * 1024}));
    const ssize_t got = ::read(fd, bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::kSystem, "cannot read the profile", used, static_cast<std::uint64_t>(errno));
    used += static_cast<std::size_t>(got);
    if (used > max_bytes) return fail(ErrorCode::kLimit, "file is larger than the limit", used, max_bytes);
    if (got == 0) {
      bytes.resize(used);
      return bytes;
    }
  }
}

}  // namespace

Expected<std::vector<std::byte>> read_bytes(const std::string& path, std::uint64_t max_bytes) {
  const bool is_stdin = path == "-";
  const int fd = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::kSystem, "cannot open the file", 0, static_cast<std::uint64_t>(errno));
  auto bytes = read_descriptor(fd, max_bytes);
  if (!is_stdin) ::close(fd);
  return bytes;
}

}  // namespace windlass::exporter
