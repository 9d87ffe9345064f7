// perf's map of code that was made at run time: lines "START SIZE name", hexadecimal. Where ranges overlap, the later
// line is the code that was there last.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace windlass::os {

// Where a process of this machine writes it: in its own /tmp, under the number that it knows itself by. Of one that has
// ended, where it would be in this process's.
[[nodiscard]] std::string perf_map_path(pid_t pid);

// Was the map last written before the process began? Then an earlier process of the same number has left it behind. The
// kernel tells a process's start to 10 ms, and clocks are set: 2 s are forgiven. False if the start is not known, as of
// a process that has ended.
[[nodiscard]] bool is_left_behind(const struct stat& map, pid_t pid);

struct PerfMapLine {
  std::uint64_t begin = 0, size = 0;
  std::string_view name;  // of the line
};
// Empty: it is none.
[[nodiscard]] std::optional<PerfMapLine> parse_perf_map_line(std::string_view line);

}  // namespace windlass::os
