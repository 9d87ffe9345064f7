// Writes to files.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace windlass::os {

// Writes all bytes, over as many calls as it takes. False: errno says why; a part may be written. Signal-safe.
[[nodiscard]] inline bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ENOSPC;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace windlass::os
