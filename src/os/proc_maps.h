// The mappings of a process. For a live process they come from /proc/PID/maps (proc(5)) and from perf's records of
// mmap. For a dump they come from that text, if the dump keeps it, or from notes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "os/file_identity.h"

namespace windlass::os {

// One mapping. `file` is from the same source; a dump of another machine has no file that counts here.
struct ProcMap {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // In the file, bytes.
  FileIdentity file;
  bool readable = false;
  bool executable = false;
  bool whole_image = false;  // Stands for all segments of a file, because a dump says no more.
  bool deleted = false;      // The path leads to another file now, or to none.
  bool presumed = false;     // A dump does not say if it is executable: the file decides.
  std::string path;  // "[vdso]", "", "//anon" (perf), or a path in the process's mount namespace, without " (deleted)".

  bool operator==(const ProcMap&) const = default;

  // True if `path` can lead to a file.
  [[nodiscard]] bool has_file() const;
  // True if it begins there and is of that file, by device and inode.
  [[nodiscard]] bool is_at(std::uint64_t address, const FileIdentity& other) const {
    return begin == address && file.inode == other.inode && file.major == other.major && file.minor == other.minor;
  }
  // Sets the path that the kernel gives: takes " (deleted)" off its end, and notes that.
  void set_path(std::string from_kernel);
};

// The mappings in the text of a maps file, in the order of the text (ascending in a kernel's). Lines that do not parse
// are skipped.
[[nodiscard]] std::vector<ProcMap> parse_proc_maps(std::string_view text);

}  // namespace windlass::os
