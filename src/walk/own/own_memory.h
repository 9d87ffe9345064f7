// Reading the own memory without ever crashing: the calling thread's stack directly, anything else by the system. One
// implementation a system: memory.cpp, windows/memory.cpp.
#pragma once

#include "windlass/walk.h"

namespace windlass::walk {

class OwnMemory final : public Memory {
 public:
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override;
  // For words of a stack: the calling thread's, or one that a signal handler of it has interrupted.
  [[nodiscard]] const std::byte* in_place(std::uint64_t address, std::size_t size) const override;
};

}  // namespace windlass::walk
