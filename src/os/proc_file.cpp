#include "os/proc_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/descriptor.h"
#include "os/living_thread.h"
#include "os/readers.h"

namespace windlass::os {

namespace {

// What its process can hold up: it is told under a lock that a thread in a page fault may have.
bool may_block(const std::string& path) {
  if (readers() == nullptr || !is_of_other(path)) return false;
  constexpr std::string_view kNever[] = {"/status", "/stat", "/comm"};
  return std::ranges::none_of(kNever, [&](std::string_view name) { return path.ends_with(name); });
}

}  // namespace

std::string read_proc_file(const std::string& path, std::size_t limit) {
  if (may_block(path)) return readers()->text(path, limit);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text = read_proc_file(fd, limit);
  const int error = errno;
  ::close(fd);
  errno = error;
  return text;
}

std::string read_proc_file(int file, std::size_t limit) {
  constexpr std::size_t kPiece = 16384;
  std::string text;
  (void)::lseek(file, 0, SEEK_SET);
  while (text.size() < limit) {
    const std::size_t had = text.size();
    text.resize(had + kPiece);
    ssize_t got = 0;
    do got = ::read(file, text.data() + had, kPiece);
    while (got < 0 && errno == EINTR);
    text.resize(had + static_cast<std::size_t>(got > 0 ? got : 0));
    if (got == 0) break;
    if (got < 0) {
      text.clear();
      break;
    }
  }
  return text;
}

std::string read_proc_file_of(pid_t pid, int file, std::size_t limit) {
  return readers() != nullptr ? readers()->text(file, pid, limit) : read_proc_file(file, limit);
}

std::vector<std::string> read_proc_files(pid_t pid, int folder, std::span<const std::string> names, std::size_t limit) {
  std::vector<std::string> living, texts;
  for (const std::string& name : names) living.push_back(living_name(folder, name));
  if (readers() != nullptr) return readers()->texts(folder, pid, living, limit);
  for (const std::string& name : living) {
    const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC));
    texts.push_back(file ? read_proc_file(file.get(), limit) : std::string());
  }
  return texts;
}

Descriptor open_proc_file(pid_t pid, int folder, const std::string& name) {
  const std::string path = living_name(folder, name);
  if (readers() != nullptr) return readers()->open(path, folder, pid);
  return Descriptor(::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC));
}

std::string_view status_field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(":\t")) return line.substr(name.size() + 2);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return {};
}

std::string_view stat_field(std::string_view text, unsigned number) {
  constexpr unsigned kName = 2;
  std::size_t at = text.rfind(')');
  for (unsigned field = kName; field < number && at != std::string_view::npos; ++field) at = text.find(' ', at + 1);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + 1);
  return text.substr(0, text.find_first_of(" \n"));
}

std::vector<pid_t> list_ids(const std::string& folder, std::size_t most) {
  const Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return list_ids(open.get(), most);
}

std::vector<pid_t> list_ids(int folder, std::size_t most) {
  struct Entry {  // linux_dirent64, getdents64(2)
    std::uint64_t inode;
    std::int64_t next;
    std::uint16_t size;
    std::uint8_t type;
    char name[1];
  };
  std::vector<pid_t> ids;
  alignas(Entry) char entries[16384];
  if (::lseek(folder, 0, SEEK_SET) != 0) return ids;
  for (long got = 0; (got = ::syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;)
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const Entry*>(entries + at);
      const char* end = entry->name + std::strlen(entry->name);
      pid_t id = 0;
      if (std::from_chars(entry->name, end, id).ptr == end && ids.size() < most) ids.push_back(id);
      at += entry->size;
    }
  return ids;
}

}  // namespace windlass::os
