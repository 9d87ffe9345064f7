// The memory of a stopped process, read with few system calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <sys/types.h>

#include "windlass/walk.h"

namespace windlass::walk {

// Pages are kept: the process must not run while this is in use, or forget() be called after it ran. Thread-safe (a
// lock).
class ProcessMemory final : public Memory {
 public:
  explicit ProcessMemory(pid_t pid);
  ~ProcessMemory() override;
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override;

  // What was read is read anew.
  void forget();

  // How often the system was asked: for tests and measurements.
  [[nodiscard]] std::uint64_t system_calls() const { return system_calls_; }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kSlots = 256;  // 1 MiB
  static constexpr std::size_t kAhead = 8;    // pages read at a time: stacks and code are read upwards
  static constexpr int kNotOpened = -2;
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  struct Slot {
    std::uint64_t page = kEmpty;  // its number
    bool readable = false;
  };
  [[nodiscard]] const std::byte* page(std::uint64_t number) const;
  void fetch(std::uint64_t number) const;
  [[nodiscard]] bool read_directly(std::uint64_t address, void* to, std::size_t size) const;

  pid_t pid_;
  // /proc/PID/mem, for pages that may not be read by the process itself; opened when first needed. It is the memory
  // that the process had then, and no other program's.
  mutable int file_ = kNotOpened;  // -1: not allowed
  mutable std::mutex lock_;
  mutable std::array<Slot, kSlots> slots_;
  std::unique_ptr<std::byte[]> bytes_;
  mutable std::uint64_t system_calls_ = 0;
};

}  // namespace windlass::walk
