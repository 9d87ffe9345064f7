// A file that lives as long as a test looks at it.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

namespace windlass::test {

class DumpFile {
 public:
  explicit DumpFile(const std::vector<std::byte>& bytes) {
    const int fd = ::mkstemp(path_.data());
    if (fd < 0) return;
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t written = ::write(fd, bytes.data() + done, bytes.size() - done);
      if (written <= 0) break;
      done += static_cast<std::size_t>(written);
    }
    ::close(fd);
  }
  ~DumpFile() { ::unlink(path_.c_str()); }
  DumpFile(const DumpFile&) = delete;
  DumpFile& operator=(const DumpFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/windlass-dump-XXXXXX";
};

}  // namespace windlass::test
