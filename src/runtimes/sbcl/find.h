// Is SBCL, a compiler and runtime of Common Lisp, in a process? By what its program exports to its own Lisp code.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::sbcl {

// In the image whose first byte is mapped at `base`: gives that address. kNotFound: it has none.
[[nodiscard]] Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base);

// The runtime in the image at an address. Never fails: if the image cannot be understood, the result finds nothing, and
// its problem() has the reason. Keeps the memory.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image);

}  // namespace windlass::runtimes::sbcl
