// The memory of another process, one read a call; walk/target/process_memory.h keeps pages for many.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "process/descriptor.h"
#include "windlass/walk.h"

namespace windlass::process {

// True if all of it could be read. One system call; some more where the first thread has ended.
[[nodiscard]] bool read_memory(pid_t pid, std::uint64_t address, void* to, std::size_t size);

// The same by /proc/PID/mem, opened at once: the memory that the process had then, and no other program's, whoever gets
// its number. Of a process that cannot be opened nothing can be read.
class MemoryFile final : public Memory {
 public:
  explicit MemoryFile(pid_t pid);
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override;

 private:
  Descriptor file_;
};

}  // namespace windlass::process
