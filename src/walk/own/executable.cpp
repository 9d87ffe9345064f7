#include "walk/own/executable.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace windlass::walk {
namespace {

// struct procmap_query of <linux/fs.h>, newer than many systems' headers.
struct ProcmapQuery {
  std::uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  std::uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  std::uint64_t vma_name_addr, build_id_addr;
};
constexpr std::uint64_t kReadable = 1, kExecutable = 4;  // PROCMAP_QUERY_VMA_*

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
  ProcmapQuery query{};
  query.size = sizeof query;
  query.query_addr = address;
  if (::ioctl(maps, _IOWR('f', 17, ProcmapQuery), &query) != 0)
    return errno == ENOENT ? Executable::kNo : Executable::kUnknown;
  extent = {query.vma_start, query.vma_end};
  return of((query.vma_flags & kReadable) != 0, (query.vma_flags & kExecutable) != 0);
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

}  // namespace windlass::walk
