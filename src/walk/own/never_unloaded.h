// Modules that cannot be unloaded while this code runs.
#pragma once

#include <cstdint>

namespace windlass::walk {

// Can the module whose lowest address is `begin` never be unloaded? True for the program, the module with this library
// in it, the modules that either needs directly or indirectly (DT_NEEDED), the dynamic linker and the vdso.
// Signal-safe. False for all until find_never_unloaded() has run.
[[nodiscard]] bool is_never_unloaded(std::uint64_t begin);

// Runs as a static initialiser. To be called by code that walks earlier: what is known of a module then stays. Once is
// enough. Not signal-safe, and for the process's first thread.
void find_never_unloaded();

}  // namespace windlass::walk
