// Code that goes on on another stack, and does not say so: glibc's swapcontext on x86-64 describes its entry only.
#pragma once

#include <cstdint>
#include <optional>

#include "windlass/bytes.h"

namespace windlass::flow {

// The address behind the first instruction of `function`, which begins at `address`, that sets rsp from memory or from
// another register. Quick where no bytes look so; else linear in the number of instructions. Thread-safe, no
// allocation.
[[nodiscard]] std::optional<std::uint64_t> replaces_stack(ByteView function, std::uint64_t address);

// Functions larger than this are not written by hand.
inline constexpr std::uint64_t kLargestSwitch = 1024;

}  // namespace windlass::flow
