// What the walker asks of the own process's module list: the part that every system has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "walk/module.h"
#include "windlass/function_ref.h"

namespace windlass::walk {

// Learns which modules are loaded, and their names. Locks and allocates; thread-safe.
void know_own_modules();
// The module around an address, or null. Neither locks nor allocates; signal-safe.
[[nodiscard]] const Module* find_own_module(std::uint64_t address);
// Copies what the caller knows to be readable.
void copy_own(std::uint64_t address, void* to, std::size_t size);
// Copies code or constants of a loaded module. The caller knows that it stays loaded: a frame of it is on the stack.
// False for anything else that may be there. Neither locks nor allocates, no system call.
[[nodiscard]] bool read_own_image(std::uint64_t address, void* to, std::size_t size);

// Memory that was executable when the kernel was asked.
struct CodeExtent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t size) const {
    return address >= begin && address < end && size <= end - address;
  }
};
enum class Executable : std::uint8_t { kNo, kYes, kHidden, kUnknown };  // kHidden: it cannot be read
// Asks the kernel for the mapping at an address. That takes three system calls; before Linux 6.11, one more for each
// KiB of /proc/self/maps. kUnknown if the kernel may not be asked. Neither locks nor allocates; keeps errno.
[[nodiscard]] Executable find_own_executable(std::uint64_t address, CodeExtent& extent);
// The module of all generated code that was never registered: without rows or a range of its own.
[[nodiscard]] const Module& undescribed_code();
// On Windows, the module of all code in no image that the system's function tables describe: without a range of its
// own. Null: no table has the address. Asks the system, which takes a lock. Does not allocate.
[[nodiscard]] const Module* find_own_table_code(std::uint64_t address);

// Has something that is loaded machine code in [begin, end)? May lock: not for signal handlers.
[[nodiscard]] bool own_module_has_code(std::uint64_t begin, std::uint64_t end);
// Those that are known and still loaded. Neither locks nor allocates.
void each_own_module(FunctionRef<void(const Module&)> callback);

}  // namespace windlass::walk
