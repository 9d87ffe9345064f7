// Which thread of a process leads to what all of them share: memory, mappings, files, folders. Where its first thread
// has ended before others (pthread_exit in main), /proc/PID and the system calls by PID lead to none of it.
#pragma once

#include <sys/types.h>

#include <string>

namespace windlass::os {

// The process's own number while its first thread lives, else that of another thread that does; its own again where
// none does, or where that cannot be told. errno stays.
[[nodiscard]] pid_t living_thread(pid_t pid);

// The name of a file in the /proc/PID that is open as `folder` ("maps", say): in the folder of a thread that lives
// ("task/12/maps") where the first one has ended.
[[nodiscard]] std::string living_name(int folder, const std::string& name);

}  // namespace windlass::os
