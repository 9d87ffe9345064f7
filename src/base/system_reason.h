// The system's words for one of its error numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace windlass {

// Writes the system's text for an error number to `to`: at most `size` bytes (size > 0), ended by a NUL. The numbers
// are errno's; on Windows, those of GetLastError().
void system_reason(std::uint64_t number, char* to, std::size_t size);

}  // namespace windlass
