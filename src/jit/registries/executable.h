// Is what is to be registered code at all?
#pragma once

#include <span>

#include "jit/registries/batch.h"
#include "walk/own_modules.h"

namespace windlass::registries {

// kMalformed, with the first address that no page of is executable. `known` is what the kernel said of some mapping
// when it was last asked, which is not asked about again: so a heap's first batch costs three system calls, and the
// next ones none. Where the kernel cannot be asked for one mapping (before Linux 6.11, in a sandbox, under qemu-user)
// all is taken for executable. To be called where Windows' registrars do not ask by themselves.
[[nodiscard]] Expected<void> check_executable(std::span<const Run> runs, walk::CodeExtent& known);

}  // namespace windlass::registries
