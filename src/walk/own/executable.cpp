#include "walk/own/executable.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "os/procmap_query.h"

namespace windlass::walk {
namespace {

Executable of(bool readable, bool executable) {
  if (!executable) return Executable::kNo;
  return readable ? Executable::kYes : Executable::kHidden;
}

// One line of the file after the other: "begin-end rwxp ...".
class Lines {
 public:
  explicit Lines(int file) : file_(file) {}
  bool next(CodeExtent& extent, Executable& answer) {
    char flags[3] = {};
    if (!number('-', extent.begin) || !number(' ', extent.end)) return false;
    for (char& flag : flags)
      if (!get(flag)) return false;
    answer = of(flags[0] == 'r', flags[2] == 'x');
    for (char c = 0; c != '\n';)
      if (!get(c)) return false;
    return true;
  }

 private:
  bool get(char& c) {
    if (at_ == size_) {
      const ssize_t got = ::read(file_, text_, sizeof text_);
      if (got <= 0) return false;
      at_ = 0;
      size_ = static_cast<std::size_t>(got);
    }
    c = text_[at_++];
    return true;
  }
  bool number(char end, std::uint64_t& to) {
    to = 0;
    for (char c = 0; get(c);) {
      if (c == end) return true;
      to = to << 4 | static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return false;
  }

  int file_;
  std::size_t at_ = 0, size_ = 0;
  char text_[1024];
};

}  // namespace

Executable query_executable(int maps, std::uint64_t address, CodeExtent& extent) {
  os::ProcmapQuery query;
  if (!os::query_mapping(maps, address, 0, query)) return errno == ENOENT ? Executable::kNo : Executable::kUnknown;
  extent = {query.vma_start, query.vma_end};
  return of((query.vma_flags & os::kQueryReadable) != 0, (query.vma_flags & os::kQueryExecutable) != 0);
}

Executable scan_executable(int maps, std::uint64_t address, CodeExtent& extent) {
  bool any = false;
  Executable answer = Executable::kNo;
  for (Lines lines(maps); lines.next(extent, answer); any = true)
    if (address < extent.end) return address >= extent.begin ? answer : Executable::kNo;
  return any ? Executable::kNo : Executable::kUnknown;
}

Executable find_own_executable(std::uint64_t address, CodeExtent& extent) {
  const int before = errno;
  Executable answer = Executable::kUnknown;
  if (const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC); maps >= 0) {
    answer = query_executable(maps, address, extent);
    if (answer == Executable::kUnknown) answer = scan_executable(maps, address, extent);
    ::close(maps);
  }
  errno = before;
  return answer;
}

const Module* find_own_table_code(std::uint64_t) { return nullptr; }  // no system but Windows has such tables

}  // namespace windlass::walk
