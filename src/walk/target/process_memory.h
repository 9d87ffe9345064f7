// The memory of a stopped process, read with few system calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/types.h>

#include "os/process_memory.h"
#include "windlass/walk.h"

namespace windlass::walk {

// Pages are kept. So the process must not run while this is in use, or forget() must be called after it ran. After
// forget(), the pages that were used before are read together with the first one needed, because most stacks of a
// process stay where they were. Thread-safe (a lock).
class ProcessMemory final : public Memory {
 public:
  explicit ProcessMemory(pid_t pid);
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override;

  // What was read is read anew.
  void forget();
  // What is there will be needed, too: it is read together with the next page.
  void expect(std::uint64_t address);

  // How often the system was asked: for tests and measurements.
  [[nodiscard]] std::uint64_t system_calls() const { return system_calls_; }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kSlots = 1024;        // 4 MiB; once they are full all are forgotten
  static constexpr std::size_t kIndex = 2 * kSlots;  // a power of two
  static constexpr std::size_t kAhead = 8;           // pages read at a time: stacks and code are read upwards
  static constexpr std::size_t kMostExpected = 768;  // that leaves room for others
  static constexpr unsigned kMostUnreadable = 8;     // of what was expected: more, and it is not as it was
  static constexpr std::uint64_t kPages = ~std::uint64_t{0} / kPage;  // numbers of pages are below

  struct Slot {
    std::uint64_t page = 0;  // its number
    bool readable = false, used = false;
  };
  [[nodiscard]] std::byte* bytes_of(std::size_t slot) const { return bytes_.get() + slot * kPage; }
  [[nodiscard]] Slot* find(std::uint64_t number) const;
  void add(std::uint64_t number, bool readable) const;
  void clear() const;
  [[nodiscard]] const std::byte* page(std::uint64_t number) const;
  void fetch(std::uint64_t number) const;
  void fetch_expected() const;
  [[nodiscard]] std::size_t read_pages(const std::uint64_t* numbers, std::size_t count) const;
  [[nodiscard]] bool read_directly(std::uint64_t address, void* to, std::size_t size) const;

  pid_t pid_;
  // /proc/PID/mem, for pages that may not be read by the process itself; opened when first needed. It is the memory
  // that the process had then, and no other program's.
  mutable std::unique_ptr<os::MemoryFile> file_;
  mutable std::mutex lock_;
  mutable std::vector<Slot> slots_;                    // in the order in which they were read
  mutable std::array<std::uint16_t, kIndex> index_{};  // by page, open addressing: a slot's number + 1; 0: none
  std::unique_ptr<std::byte[]> bytes_;                 // of slots
  mutable std::vector<std::uint64_t> expected_;        // numbers of pages
  mutable std::uint64_t system_calls_ = 0;
};

}  // namespace windlass::walk
