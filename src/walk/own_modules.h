// What the walker asks of the own process's module list: the part that every system has.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "walk/module.h"

namespace windlass::walk {

// Learns which modules are loaded, and their names. Locks and allocates; thread-safe.
void know_own_modules();
// The module around an address, or null. Neither locks nor allocates; signal-safe.
[[nodiscard]] const Module* find_own_module(std::uint64_t address);
// Has something that is loaded machine code in [begin, end)? May lock: not for signal handlers.
[[nodiscard]] bool own_module_has_code(std::uint64_t begin, std::uint64_t end);
// Those that are known and still loaded. Neither locks nor allocates.
void each_own_module(FunctionRef<void(const Module&)> callback);

}  // namespace windlass::walk
