// The system's words for one of its error numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace windlass {

// Writes them, ended by a NUL, to `to`, at most `size` bytes of it (size > 0). errno's numbers; on Windows
// GetLastError's.
void system_reason(std::uint64_t number, char* to, std::size_t size);

}  // namespace windlass
