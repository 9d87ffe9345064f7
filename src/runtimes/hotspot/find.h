// Is the HotSpot Java virtual machine in a process? By the tables that its libjvm.so exports for debuggers.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::hotspot {

// In the image whose first byte is mapped at `base`: gives that address. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_tables(const Memory& memory, std::uint64_t base);

// The virtual machine in the image at an address. Never fails for what it cannot understand: it finds nothing then, and
// its problem() says why. Keeps the memory.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image);

}  // namespace windlass::runtimes::hotspot
