// Reads exported functions that do nothing but load. Their one instruction holds the offset of a structure's field, or
// the address of a variable. So the version of the runtime need not be guessed.
#pragma once

#include <cstdint>

#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

// `mov rax, [rdi + N]; ret`, or eax: N. kUnreadable; kUnsupported: the function is more than that.
[[nodiscard]] Expected<std::uint32_t> field_of_accessor(const Memory& memory, std::uint64_t function);

// `mov rax, [rip + N]; ret`, or eax: the variable's address. Errors likewise.
[[nodiscard]] Expected<std::uint64_t> variable_of_accessor(const Memory& memory, std::uint64_t function);

}  // namespace windlass::runtimes
