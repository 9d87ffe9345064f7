// A jitdump's bytes, record by record, and a file that they are appended to.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/jitdump.h"

namespace windlass::test {

class JitdumpText {
 public:
  JitdumpText& header(const os::JitdumpHeader& header = {.elf_machine = 62}) { return raw(header); }
  JitdumpText& load(std::uint64_t time, std::uint64_t address, std::uint64_t size, std::uint64_t index,
                    std::string_view name) {
    return record(os::JitdumpKind::kLoad, time,
                  bytes(os::JitdumpLoad{.vma = address, .address = address, .size = size, .index = index}) +
                      std::string(name) + '\0' + std::string(size < 4096 ? size : 0, '\x90'));
  }
  JitdumpText& move(std::uint64_t time, std::uint64_t from, std::uint64_t to, std::uint64_t size, std::uint64_t index) {
    return record(os::JitdumpKind::kMove, time,
                  bytes(os::JitdumpMove{.vma = to, .from = from, .to = to, .size = size, .index = index}));
  }
  JitdumpText& unwinding(std::uint64_t time, std::string_view frames, std::uint64_t header_size) {
    return record(os::JitdumpKind::kUnwindingInfo, time,
                  bytes(os::JitdumpUnwinding{.size = frames.size(), .header_size = header_size}) + std::string(frames));
  }
  // An entry's address as it stands, its line and its file.
  struct Line {
    std::uint64_t address;
    std::uint32_t line;
    std::string_view file;
  };
  JitdumpText& lines(std::uint64_t time, std::uint64_t address, const std::vector<Line>& lines) {
    std::string body = bytes(os::JitdumpDebugInfo{.address = address, .count = lines.size()});
    for (const Line& line : lines)
      (body += bytes(os::JitdumpDebugEntry{.address = line.address, .line = line.line})).append(line.file) += '\0';
    return record(os::JitdumpKind::kDebugInfo, time, body);
  }
  JitdumpText& close(std::uint64_t time) { return record(os::JitdumpKind::kClose, time, {}); }
  JitdumpText& record(os::JitdumpKind kind, std::uint64_t time, std::string_view body) {
    const auto size = static_cast<std::uint32_t>(sizeof(os::JitdumpRecord) + body.size());
    return raw(os::JitdumpRecord{.kind = kind, .size = size, .time = time}).text(body);
  }
  template <typename T>
  JitdumpText& raw(const T& value) {
    return text(bytes(value));
  }
  JitdumpText& text(std::string_view more) {
    text_ += more;
    return *this;
  }
  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  template <typename T>
  static std::string bytes(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  std::string text_;
};

// In memory.
class GrowingFile {
 public:
  GrowingFile() : fd_(::memfd_create("growing", MFD_CLOEXEC)) {}
  // Another descriptor of it.
  [[nodiscard]] os::Descriptor reader() const { return os::Descriptor(::dup(fd_.get())); }
  bool append(std::string_view text) const {
    return ::lseek(fd_.get(), 0, SEEK_END) >= 0 &&
           ::write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  [[nodiscard]] bool cut(std::uint64_t size) const { return ::ftruncate(fd_.get(), static_cast<off_t>(size)) == 0; }

 private:
  os::Descriptor fd_;
};

}  // namespace windlass::test
