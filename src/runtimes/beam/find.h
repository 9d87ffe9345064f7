// Is an Erlang virtual machine in a process? By what it exports to debuggers, or else to its loaded libraries.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::beam {

// In the image whose first byte is mapped at `base`: gives that address. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base);

// The virtual machine in the image at an address. Never fails: if the image cannot be understood, the result finds
// nothing, and its problem() has the reason. Keeps the memory.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image);

}  // namespace windlass::runtimes::beam
