// Which part of a section of a code manager's table core files have: what is used, and room for a little more. Of a
// mapping of shared memory they would have all, also what was never used.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace windlass::manager {

class CorePart {
 public:
  static constexpr std::uint64_t kStep = 256u << 10;

  // Of `size` bytes, none of which core files have so far (MADV_DONTDUMP).
  CorePart(std::byte* begin, std::uint64_t size) : begin_(reinterpret_cast<std::uintptr_t>(begin)), size_(size) {}

  // Core files contain the first `used` bytes from here on. Takes a system call for every kStep of growth. If that
  // fails, core files contain as much as before, and the next call tries again.
  void reach(std::uint64_t used) {
    if (used <= covered_) return;
    const std::uint64_t wanted = std::min(size_, used + kStep);
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t from = (begin_ + covered_) & ~(page - 1), to = (begin_ + wanted + page - 1) & ~(page - 1);
    if (::madvise(reinterpret_cast<void*>(from), to - from, MADV_DODUMP) == 0) covered_ = wanted;
  }

 private:
  std::uintptr_t begin_;
  std::uint64_t size_;
  std::uint64_t covered_ = 0;
};

}  // namespace windlass::manager
