// Is what is to be registered code at all?
#pragma once

#include <span>

#include "jit/registries/batch.h"
#include "walk/own_modules.h"

namespace windlass::registries {

// kMalformed, with the first address on a page that is not executable. `known` holds the kernel's last answer about a
// mapping, which is not asked again. So a heap's first batch costs three system calls, and later batches none. If the
// kernel cannot be asked for one mapping (before Linux 6.11, in a sandbox, under qemu-user), all code counts as
// executable. Call this where Windows' registrars do not ask themselves.
[[nodiscard]] Expected<void> check_executable(std::span<const Run> runs, walk::CodeExtent& known);

}  // namespace windlass::registries
