// Which thread of a process leads to what all of them share: memory, mappings, files, folders. Where its first thread
// has ended before others (pthread_exit in main), /proc/PID and the system calls by PID lead to none of it.
#pragma once

#include <sys/types.h>

#include <string>

namespace windlass::os {

// The process's id while its first thread lives; else the id of another living thread. The process's id again if no
// thread lives, or if that cannot be told. errno stays.
[[nodiscard]] pid_t living_thread(pid_t pid);

// The name of a file in the /proc/PID that is open as `folder`, for example "maps". If the first thread has ended, the
// name in the folder of a living thread ("task/12/maps").
[[nodiscard]] std::string living_name(int folder, const std::string& name);

}  // namespace windlass::os
