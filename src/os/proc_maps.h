// What a process has mapped: of live processes from /proc/PID/maps (proc(5)) and from perf's records of mmap, of dumps
// from that text where they keep it, or from notes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "os/file_identity.h"

namespace windlass::os {

// One mapping. `file` is what the source says of it; a dump of another machine says nothing that counts here.
struct ProcMap {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in the file, bytes
  FileIdentity file;
  bool readable = false;
  bool executable = false;
  bool whole_image = false;  // stands for all of a file's segments: that is all a dump says
  bool deleted = false;      // the path leads to another file now, or to none
  bool presumed = false;     // a dump does not say whether it is executable: the file decides
  std::string path;  // "[vdso]", "", "//anon" (perf) or a path in the process's mount namespace, without " (deleted)"

  bool operator==(const ProcMap&) const = default;

  // A path that a file can be found by.
  [[nodiscard]] bool has_file() const;
  // The path as the kernel gives it: takes " (deleted)" off its end and notes it.
  void set_path(std::string from_kernel);
};

// The mappings in the text of a maps file, in its order (ascending in a kernel's). Lines that do not parse are skipped.
[[nodiscard]] std::vector<ProcMap> parse_proc_maps(std::string_view text);

}  // namespace windlass::os
