#include "export/output.h"

#include <unistd.h>

#include <cerrno>

namespace windlass::exporter {

void Output::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void Output::write_through(std::string_view bytes) {
  while (!bytes.empty() && errno_ == 0) {
    const ssize_t done = ::write(fd_, bytes.data(), bytes.size());
    if (done > 0) {
      written_ += static_cast<std::uint64_t>(done);
      bytes.remove_prefix(static_cast<std::size_t>(done));
    } else if (done == 0 || errno != EINTR) {
      errno_ = done == 0 ? ENOSPC : errno;
    }
  }
}

Expected<void> Output::finish() {
  if (text_ == nullptr) flush();
  if (errno_ != 0)
    return fail(ErrorCode::kSystem, "cannot write the output", written_, static_cast<std::uint64_t>(errno_));
  return {};
}

}  // namespace windlass::exporter
