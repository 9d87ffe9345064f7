#include "os/living_thread.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "os/descriptor.h"
#include "os/proc_file.h"

namespace windlass::os {
namespace {

constexpr std::size_t kMostThreads = 4096;  // that are looked at

std::string prefix_of(pid_t thread) { return thread != 0 ? fmt::format("task/{}/", thread) : std::string(); }

// The link to the program is there while the thread has memory. One that may not be looked at counts as living.
bool lives(int folder, pid_t thread) {
  char path[1];
  return ::readlinkat(folder, (prefix_of(thread) + "exe").c_str(), path, sizeof path) >= 0 || errno != ENOENT;
}

// 0: the first thread, or none.
pid_t find_living(int folder) {
  if (lives(folder, 0)) return 0;
  const Descriptor threads(::openat(folder, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const pid_t id : list_ids(threads.get(), kMostThreads))
    if (lives(folder, id)) return id;
  return 0;
}

}  // namespace

pid_t living_thread(pid_t pid) {
  const int error = errno;
  const Descriptor folder(::open(fmt::format("/proc/{}", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const pid_t thread = folder ? find_living(folder.get()) : 0;
  errno = error;
  return thread != 0 ? thread : pid;
}

std::string living_name(int folder, const std::string& name) { return prefix_of(find_living(folder)) + name; }

}  // namespace windlass::os
