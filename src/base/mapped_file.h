// A whole file's bytes, read-only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "windlass/bytes.h"

namespace windlass {

// Movable, not copyable; its bytes stay where they are when it is moved.
class MappedFile {
 public:
  // Maps the file. A file that its owner truncates while it is mapped raises SIGBUS on access: use `read` for files of
  // processes one does not trust. Errors: kSystem with the system's number; kUnsupported for what is no regular file.
  [[nodiscard]] static Expected<MappedFile> open(const std::string& path);
  // The same for an open descriptor, which stays the caller's. Not on Windows.
  [[nodiscard]] static Expected<MappedFile> from_fd(int fd);
  // Who opens files for open() from here on, null: it does. For programs whose files may be on a server that has
  // stopped (os/readers.h). Not while another thread opens one.
  using Opener = Expected<MappedFile> (*)(const std::string& path);
  static void set_opener(Opener opener);
  // A private copy in memory of a file of at most `limit` bytes.
  [[nodiscard]] static Expected<MappedFile> read(const std::string& path, std::size_t limit = std::size_t{4} << 30);

  [[nodiscard]] ByteView bytes() const { return ByteView(static_cast<const std::byte*>(data_), size_); }

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace windlass
