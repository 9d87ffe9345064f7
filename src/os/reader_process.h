// The processes behind readers.h. Each function runs in a process of its own and does not return.
#pragma once

#include <sys/types.h>

namespace windlass::os {

// Starts a reader for each socket that comes over `control`, until that is closed: its readers end with it. It never
// touches what may block, so that it can always be waited for.
[[noreturn]] void run_reader_starter(int control);

// One reader, which answers over `socket` and ends with the thread that started it, of process `parent`.
[[noreturn]] void run_reader(int socket, pid_t parent);

// A message over the control socket: a socket comes with kStart, a nice value in `value` with kPriority.
struct StarterOrder {
  enum Kind : int { kStart, kPriority } kind = kStart;
  int value = 0;
};

}  // namespace windlass::os
