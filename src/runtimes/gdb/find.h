// Has a process registered code with GDB? By the descriptor that whoever does exports: QEMU, LLVM's JIT compilers, a
// Registrar of ours.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::gdb {

// In the image whose first byte is mapped at `base`: the descriptor's address. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_descriptor(const Memory& memory, std::uint64_t base);

// What is registered by the descriptor at an address, as long as anything is. Keeps the memory.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t descriptor);

}  // namespace windlass::runtimes::gdb
