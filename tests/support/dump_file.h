// What tests of dumps share: a file that lives as long as a test looks at it, and something to fill dumps with.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

#include "windlass/bytes.h"
#include "windlass/registers.h"

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

// What dumps are filled with.
inline std::vector<std::byte> filled(std::size_t size, unsigned value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

inline Registers some_registers(Architecture architecture, std::uint64_t seed) {
  Registers registers(architecture);
  const std::uint64_t last = architecture == Architecture::kX86_64 ? 16 : 32;
  for (std::uint64_t reg = 0; reg <= last; ++reg) registers.set(reg, seed + reg);
  if (architecture == Architecture::kAArch64)
    for (std::uint64_t reg = 72; reg < 80; ++reg) registers.set(reg, seed + reg);
  return registers;
}

inline ByteView view(const std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

}  // namespace windlass::test
