// The memory of another process, one read a call; walk/target/process_memory.h keeps pages for many.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace windlass::process {

// True if all of it could be read. One system call.
[[nodiscard]] bool read_memory(pid_t pid, std::uint64_t address, void* to, std::size_t size);

}  // namespace windlass::process
