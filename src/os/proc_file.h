// Files of /proc, whose size is not known beforehand.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/descriptor.h"

namespace windlass::os {

// Its text; empty if it is empty, or cannot be read: errno says why then. At most `limit` bytes.
[[nodiscard]] std::string read_proc_file(const std::string& path, std::size_t limit = std::size_t{64} << 20);
// Of an open one, from its beginning.
[[nodiscard]] std::string read_proc_file(int file, std::size_t limit = std::size_t{64} << 20);

// Of an open one of process `pid`, which may hold up whoever reads it.
[[nodiscard]] std::string read_proc_file_of(pid_t pid, int file, std::size_t limit = std::size_t{64} << 20);
// Files in an open /proc/PID, those of a thread that lives.
[[nodiscard]] std::vector<std::string> read_proc_files(pid_t pid, int folder, std::span<const std::string> names,
                                                       std::size_t limit = std::size_t{64} << 20);
// A file in an open /proc/PID, that of a thread that lives.
[[nodiscard]] Descriptor open_proc_file(pid_t pid, int folder, const std::string& name);

// The value of the line "NAME:\tVALUE" in the text of a /proc/PID/status; empty: there is none. (A newline in a
// thread's name, which is the first line, is written as "\n".)
[[nodiscard]] std::string_view status_field(std::string_view text, std::string_view name);

// The field of that number, from 3 on, in the text of a /proc/PID/stat, as proc(5) numbers them; empty: there is none.
// (The name, field 2, may hold blanks and parentheses itself.)
[[nodiscard]] std::string_view stat_field(std::string_view text, unsigned number);

// The numbers that a folder has entries for: processes in /proc, threads in /proc/PID/task. At most `most` of
// them; empty if it cannot be read.
constexpr std::size_t kMostIds = std::size_t{1} << 22;  // PID_MAX_LIMIT (include/linux/threads.h)
[[nodiscard]] std::vector<pid_t> list_ids(const std::string& folder, std::size_t most = kMostIds);
// Of an open folder, from its beginning.
[[nodiscard]] std::vector<pid_t> list_ids(int folder, std::size_t most = kMostIds);

}  // namespace windlass::os
