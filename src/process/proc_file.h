// Files of /proc, whose size is not known beforehand.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace windlass::process {

// Its text; empty if it cannot be read or is empty. At most `limit` bytes.
[[nodiscard]] std::string read_proc_file(const std::string& path, std::size_t limit = std::size_t{64} << 20);

// The numbers that a folder has entries for: processes in /proc, threads in /proc/PID/task. At most `most` of
// them; empty if it cannot be read.
constexpr std::size_t kMostIds = std::size_t{1} << 22;  // PID_MAX_LIMIT (include/linux/threads.h)
[[nodiscard]] std::vector<pid_t> list_ids(const std::string& folder, std::size_t most = kMostIds);

}  // namespace windlass::process
