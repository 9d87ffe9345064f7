#include "process/process_memory.h"

#include <sys/uio.h>

namespace windlass::process {

bool read_memory(pid_t pid, std::uint64_t address, void* to, std::size_t size) {
  const iovec local{to, size};
  const iovec remote{reinterpret_cast<void*>(address), size};
  return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

}  // namespace windlass::process
