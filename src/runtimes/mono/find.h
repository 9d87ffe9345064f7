// Is Mono in a process? By what its image exports to programs that embed it.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::mono {

// In the image whose first byte is mapped at `base`: gives that address. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base);

// The runtime in the image at an address. Never fails for what it cannot understand: it finds nothing then, and its
// problem() says why. Keeps the memory.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image);

}  // namespace windlass::runtimes::mono
