// Where exporters write: a file descriptor or a string, buffered, remembering the first failure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "windlass/error.h"

namespace windlass::exporter {

class Output {
 public:
  // The descriptor stays the caller's. A short or interrupted write is continued.
  explicit Output(int fd) : fd_(fd) { buffer_.reserve(kBufferSize); }
  explicit Output(std::string* text) : text_(text) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view bytes) {
    if (text_ != nullptr) {
      text_->append(bytes);
      return;
    }
    if (buffer_.size() + bytes.size() > kBufferSize) flush();
    if (bytes.size() >= kBufferSize)
      write_through(bytes);
    else
      buffer_.append(bytes);
  }
  // Writes what is buffered; the first error of the whole output (kSystem, detail = errno; where = bytes written
  // before).
  [[nodiscard]] Expected<void> finish();
  [[nodiscard]] bool failed() const { return errno_ != 0; }

 private:
  static constexpr std::size_t kBufferSize = 64 * 1024;
  void flush();
  void write_through(std::string_view bytes);

  int fd_ = -1;
  std::string* text_ = nullptr;
  std::string buffer_;
  std::uint64_t written_ = 0;
  int errno_ = 0;
};

}  // namespace windlass::exporter
