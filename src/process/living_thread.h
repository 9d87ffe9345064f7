// Which thread of a process leads to what all of them share: memory, mappings, files, folders. Where its first thread
// has ended before others (pthread_exit in main), /proc/PID and the system calls by PID lead to none of it.
#pragma once

#include <sys/types.h>

#include <string>

#include "process/descriptor.h"

namespace windlass::process {

// The process's own number while its first thread lives, else that of another thread that does; its own again where
// none does, or where that cannot be told. errno stays.
[[nodiscard]] pid_t living_thread(pid_t pid);

// A descriptor for reading of a file in the /proc/PID that is open as `folder` ("maps", say), or in the folder of a
// thread that lives. None where there is no such file: errno says why.
[[nodiscard]] Descriptor open_file_of(int folder, const std::string& name);

}  // namespace windlass::process
