// Where the file behind a mapping can be opened.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "os/descriptor.h"
#include "os/opened_regular.h"
#include "os/proc_maps.h"
#include "windlass/function_ref.h"

namespace windlass::os {

struct FileCandidate {
  std::string path;
  bool certain = false;     // leads to the file that is mapped there now, whatever its name
  std::uint64_t inode = 0;  // of the mapped file, to compare with where no build id is known; 0: not known
  dev_t device = 0;         // of the mapped file, where it is no block device: its server may have stopped
};

// The device of a mapped file; 0 where it is a block device, which has no server.
[[nodiscard]] dev_t device_of(const ProcMap& map);

// The paths to the file that a live process has mapped, the best first:
// - /proc/PID/map_files: the mapped file itself, whatever became of its name. Needs CAP_SYS_ADMIN or
//   CAP_CHECKPOINT_RESTORE.
// - The path below the process's root directory.
// - The path below the parent's root directory, for a process that has ended meanwhile. `parent` 0: not known.
// - The path itself.
//
// A name that is known to lead elsewhere is not used.
[[nodiscard]] std::vector<FileCandidate> files_of(pid_t pid, pid_t parent, const ProcMap& map);
// The same of a process whose living_thread() is known, and whose parent is not.
[[nodiscard]] std::vector<FileCandidate> files_of_thread(pid_t thread, const ProcMap& map);

// A read-only descriptor of the regular file `path`, close-on-exec. For any other kind of file -1 and ENODEV: a FIFO
// under a mapped file's name would block, and a device could do anything.
[[nodiscard]] int open_regular(const std::string& path);
// The same, and what stat(2) says of the file: the descriptor may be a copy's (readers.h).
[[nodiscard]] OpenedRegular open_regular(const FileCandidate& candidate);
// Opens the candidates, and calls take() with each that opens, until it says yes. A certain one may have another inode
// than the mapped file: another file may be mapped there by now, as a program loads and unloads libraries at one
// address. Such a one comes last. Where it alone is left, the file system gives its files two numbers.
void take_first(std::span<const FileCandidate> candidates,
                FunctionRef<bool(OpenedRegular& opened, const FileCandidate& candidate)> take);
// stat(2) of it; false and errno.
[[nodiscard]] bool status_of(const std::string& path, struct stat& to);

// A file that others still write, which is read as it grows.
class GrowingFile {
 public:
  GrowingFile() = default;
  GrowingFile(Descriptor file) : file_(std::move(file)) {}  // one whose reads do not block
  // None, and errno, where it is no regular file.
  [[nodiscard]] static GrowingFile open(const FileCandidate& candidate, struct stat& status);

  explicit operator bool() const { return static_cast<bool>(file_); }
  // A descriptor that can be opened by its number and read without blocking; -1: there is none.
  [[nodiscard]] int fd() const { return subject_.empty() ? file_.get() : -1; }
  // pread(2) and fstat(2).
  [[nodiscard]] ssize_t read_at(std::uint64_t offset, std::span<std::byte> to) const;
  [[nodiscard]] bool status(struct stat& to) const;

 private:
  Descriptor file_;
  std::string subject_;  // empty: its reads do not block
};

// That of the first of files_of() that is the mapped file for certain or by its inode; none where nothing is.
[[nodiscard]] Descriptor open_mapped(pid_t pid, pid_t parent, const ProcMap& map);

// A descriptor of a memory file with these bytes; -1 where it cannot be made.
[[nodiscard]] int open_in_memory(const void* bytes, std::size_t size);

// A descriptor of a memory file with the bytes of the vdso, which the kernel maps into every 64-bit process alike; -1
// where there is none (qemu-user, vdso=0).
[[nodiscard]] int open_vdso();

// The same of the vdso that a process has mapped at `map`, of a 32-bit one, say. -1, too, where the process has ended.
[[nodiscard]] int open_vdso_of(pid_t pid, const ProcMap& map);

}  // namespace windlass::os
