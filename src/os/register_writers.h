// Functions of the running kernel that replace a thread's user registers, one register after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace windlass::os {

// Such a function calls a signal handler, or returns from one. A sample in the middle of it has registers of two
// states. The stack of such registers can look whole, and is none that the thread ever had.
class RegisterWriters {
 public:
  // Reads the names of the kernel's functions: 0.1 s of CPU time. There are none if the file does not show addresses.
  explicit RegisterWriters(const std::string& kallsyms = "/proc/kallsyms");

  // Was the kernel in such a function itself, or in an interrupt of it? What the function calls does not count: no
  // register is written meanwhile. `kernel`: the kernel's frames, innermost first. O(frames).
  [[nodiscard]] bool were_writing(std::span<const std::uint64_t> kernel) const;

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // addresses from the first on, up to the second
  std::uint64_t entry_begin_ = 0, entry_end_ = 0;                // the code that interrupts begin with
};

}  // namespace windlass::os
