#include "os/mapped_files.h"

#include <algorithm>
#include <cerrno>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/living_thread.h"
#include "os/process_memory.h"
#include "os/readers.h"

namespace windlass::os {

dev_t device_of(const ProcMap& map) { return map.file.major == 0 ? makedev(0, map.file.minor) : 0; }

namespace {

std::vector<FileCandidate> files_of_threads(pid_t thread, pid_t parent, const ProcMap& map) {
  const dev_t device = device_of(map);
  std::vector<FileCandidate> files;
  files.push_back({fmt::format("/proc/{}/map_files/{:x}-{:x}", thread, map.begin, map.end), true, 0, device});
  if (map.deleted) return files;
  files.push_back({fmt::format("/proc/{}/root{}", thread, map.path), false, map.file.inode, device});
  if (parent != 0) files.push_back({fmt::format("/proc/{}/root{}", parent, map.path), false, map.file.inode, device});
  files.push_back({map.path, false, map.file.inode, device});
  return files;
}

}  // namespace

std::vector<FileCandidate> files_of(pid_t pid, pid_t parent, const ProcMap& map) {
  return files_of_threads(living_thread(pid), parent != 0 ? living_thread(parent) : 0, map);
}

std::vector<FileCandidate> files_of_thread(pid_t thread, const ProcMap& map) {
  return files_of_threads(thread, 0, map);
}

int open_regular(const std::string& path) {
  if (readers() != nullptr && !is_own(path)) return readers()->open_regular(path).file.release();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  if (fd < 0 || (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode))) return fd;
  ::close(fd);
  errno = ENODEV;
  return -1;
}

OpenedRegular open_regular(const FileCandidate& candidate) {
  if (readers() != nullptr && !is_own(candidate.path))
    return readers()->open_regular(candidate.path, candidate.device, candidate.certain);
  OpenedRegular opened{Descriptor(open_regular(candidate.path)), {}, false};
  if (opened.file && ::fstat(opened.file.get(), &opened.status) != 0) opened.file = Descriptor();
  return opened;
}

void take_first(std::span<const FileCandidate> candidates,
                FunctionRef<bool(OpenedRegular& opened, const FileCandidate& candidate)> take) {
  const auto is_other = [&](std::uint64_t inode) {
    return std::ranges::any_of(candidates, [&](const auto& it) { return it.inode != 0 && it.inode != inode; });
  };
  std::vector<std::pair<OpenedRegular, const FileCandidate*>> last;
  for (const FileCandidate& candidate : candidates) {
    OpenedRegular opened = open_regular(candidate);
    if (!opened.file) continue;
    if (candidate.certain && is_other(opened.status.st_ino))
      last.emplace_back(std::move(opened), &candidate);
    else if (take(opened, candidate))
      return;
  }
  for (auto& [opened, candidate] : last)
    if (take(opened, *candidate)) return;
}

bool status_of(const std::string& path, struct stat& to) {
  if (readers() != nullptr && !is_own(path)) return readers()->status(path, to);
  return ::stat(path.c_str(), &to) == 0;
}

GrowingFile GrowingFile::open(const FileCandidate& candidate, struct stat& status) {
  GrowingFile growing;
  OpenedRegular opened = readers() != nullptr && !is_own(candidate.path) ? readers()->open_growing(candidate.path)
                                                                         : open_regular(candidate);
  if (opened.remote) growing.subject_ = candidate.path;
  growing.file_ = std::move(opened.file);
  status = opened.status;
  return growing;
}

ssize_t GrowingFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  if (!subject_.empty()) return readers()->read_at(file_.get(), subject_, offset, to);
  return ::pread(file_.get(), to.data(), to.size(), static_cast<off_t>(offset));
}

bool GrowingFile::status(struct stat& to) const {
  if (!subject_.empty()) return readers()->file_status(file_.get(), subject_, to);
  return ::fstat(file_.get(), &to) == 0;
}

Descriptor open_mapped(pid_t pid, pid_t parent, const ProcMap& map) {
  Descriptor file;
  take_first(files_of(pid, parent, map), [&](OpenedRegular& opened, const FileCandidate& candidate) {
    if (!candidate.certain && (candidate.inode == 0 || opened.status.st_ino != candidate.inode)) return false;
    file = std::move(opened.file);
    return true;
  });
  return file;
}

int open_in_memory(const void* bytes, std::size_t size) {
  const int fd = ::memfd_create("windlass-image", MFD_CLOEXEC);
  if (fd < 0 || ::write(fd, bytes, size) == static_cast<ssize_t>(size)) return fd;
  ::close(fd);
  return -1;
}

int open_vdso() {
  const auto* base = reinterpret_cast<const char*>(::getauxval(AT_SYSINFO_EHDR));
  if (base == nullptr) return -1;
  // A whole ELF file, mapped as one: its section headers come last, or its last segment does.
  const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(base);
  std::uint64_t size = header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(base + header.e_phoff);
  for (unsigned i = 0; i < header.e_phnum; ++i) size = std::max(size, segments[i].p_offset + segments[i].p_filesz);
  return open_in_memory(base, size);
}

int open_vdso_of(pid_t pid, const ProcMap& map) {
  constexpr std::uint64_t kLargest = 1 << 20;
  if (map.end - map.begin > kLargest) return -1;
  std::vector<std::byte> bytes(map.end - map.begin);
  return read_memory(pid, map.begin, bytes.data(), bytes.size()) ? open_in_memory(bytes.data(), bytes.size()) : -1;
}

}  // namespace windlass::os
