// Can an address be what a frame returns to? Checks of candidates that no unwind information vouches for.
#pragma once

#include <cstdint>

#include "windlass/walk.h"

namespace windlass::walk {

// The code's own bytes: the process's memory, or, where a dump left them out, the module's file.
[[nodiscard]] bool read_code(const AddressSpace& space, std::uint64_t address, void* to, std::size_t size);

// Does a call instruction end at `address`?
[[nodiscard]] bool behind_call(const AddressSpace& space, std::uint64_t address);

// Does rt_sigreturn's trampoline begin at `address`? Signal handlers return to it as if it had called them.
[[nodiscard]] bool is_trampoline(const AddressSpace& space, std::uint64_t address);

// Can these be a caller's registers at all? The pc lies in known code, sp is an aligned address of user space.
[[nodiscard]] bool plausible(const AddressSpace& space, const Registers& caller);

}  // namespace windlass::walk
