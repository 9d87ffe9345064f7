// A process's memory as it is while it runs; one read in `odds` gives some bits that are not there. 0: none does.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <random>

#include "os/process_memory.h"
#include "windlass/walk.h"

namespace windlass::test {

class FlippingMemory final : public Memory {
 public:
  FlippingMemory(pid_t pid, unsigned odds) : memory_(pid), odds_(odds) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    if (!memory_.read(address, to, size)) return false;
    if (size != 0 && odds_ != 0 && random_() % odds_ == 0)
      for (std::size_t i = random_() % 3 + 1; i-- > 0;)
        static_cast<std::uint8_t*>(to)[random_() % size] ^= static_cast<std::uint8_t>(1U << random_() % 8);
    return true;
  }

 private:
  os::MemoryFile memory_;
  unsigned odds_;
  mutable std::mt19937 random_{3};
};

}  // namespace windlass::test
