// The memory of another process, one read a call; walk/target/process_memory.h keeps pages for many.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/timed_memory.h"
#include "os/descriptor.h"

namespace windlass::os {

// As process_vm_readv(2), from several places to one, whoever reads (readers.h). By a thread that lives, where the
// first one has ended.
[[nodiscard]] ssize_t read_ranges(pid_t pid, std::span<const iovec> from, std::span<std::byte> to);

// True if all of it could be read. One system call; some more where the first thread has ended.
[[nodiscard]] bool read_memory(pid_t pid, std::uint64_t address, void* to, std::size_t size);

// The same by /proc/PID/mem, opened at once: the memory that the process had then, and no other program's, whoever gets
// its number. Of a process that cannot be opened nothing can be read. One thread at a time.
class MemoryFile final : public TimedMemory {
 public:
  // Samples are older than that when they are looked at.
  static constexpr std::uint64_t kMoment = 250'000;  // ns

  // What readers have read serves for `moment` ns.
  explicit MemoryFile(pid_t pid, std::uint64_t moment = kMoment);
  ~MemoryFile() override;
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override;
  void set_time(std::uint64_t time) const override;
  explicit operator bool() const { return static_cast<bool>(file_); }

 private:
  class Batches;
  [[nodiscard]] bool read_by_readers(std::uint64_t address, std::span<std::byte> to) const;

  pid_t pid_;
  Descriptor file_;
  std::unique_ptr<Batches> batches_;  // null: it reads for itself
};

}  // namespace windlass::os
