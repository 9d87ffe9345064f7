// Whether one process may read another's memory here: qemu-user has no such system call. It is asked directly, so that
// a test of what uses it fails, and is not skipped, where that is broken.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace windlass::test {

// Empty if it may; else what to skip with.
inline std::string no_process_reading() {
  int from = 1, to = 0;
  const iovec local{&to, sizeof to};
  const iovec remote{&from, sizeof from};
  const bool missing = process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0 && errno == ENOSYS;
  return missing ? "no process_vm_readv here (qemu-user)" : "";
}

}  // namespace windlass::test
