// What a process has mapped, as Linux tells it in /proc/PID/maps (proc(5)): of live processes, and of dumps that keep
// that text or say the same in notes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace windlass::process {

struct ProcMap {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in the file, bytes
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint64_t inode = 0;
  bool readable = false;
  bool executable = false;
  bool whole_image = false;  // stands for all of a file's segments: that is all a dump tells
  bool deleted = false;      // the path leads to another file now, or to none
  bool presumed = false;     // a dump does not tell whether it is executable: the file decides
  std::string path;          // "[vdso]", "" or a path in the process's mount namespace, without " (deleted)"

  // A path that a file can be found by.
  [[nodiscard]] bool has_file() const;
};

// The mappings in the text of a maps file, in its order (ascending in a kernel's). Lines that do not parse are skipped.
[[nodiscard]] std::vector<ProcMap> parse_proc_maps(std::string_view text);

}  // namespace windlass::process
