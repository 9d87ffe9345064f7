#include "process/process_memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "process/living_thread.h"

namespace windlass::process {

bool read_memory(pid_t pid, std::uint64_t address, void* to, std::size_t size) {
  const iovec local{to, size};
  const iovec remote{reinterpret_cast<void*>(address), size};
  const auto read = [&](pid_t thread) { return ::process_vm_readv(thread, &local, 1, &remote, 1, 0); };
  ssize_t got = read(pid);
  if (got < 0 && errno == ESRCH)
    if (const pid_t thread = living_thread(pid); thread != pid) got = read(thread);
  return got == static_cast<ssize_t>(size);
}

MemoryFile::MemoryFile(pid_t pid)
    : file_(::open(fmt::format("/proc/{}/mem", living_thread(pid)).c_str(), O_RDONLY | O_CLOEXEC)) {}

bool MemoryFile::read(std::uint64_t address, void* to, std::size_t size) const {
  if (!file_ || address > static_cast<std::uint64_t>(INT64_MAX)) return size == 0;
  return ::pread(file_.get(), to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
}

}  // namespace windlass::process
