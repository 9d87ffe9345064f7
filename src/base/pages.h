// Memory straight from the system, for what is needed where malloc may not be called.
#pragma once

#include <cstddef>
#include <cstdint>

namespace windlass {

// Of the processors that are known. Where pages are larger, they are multiples.
inline constexpr std::uint64_t kSmallestPage = 4096;

// Zeroed, page-aligned, touched only when used; null if there is none. A system call; signal-safe.
[[nodiscard]] void* map_pages(std::size_t size);
// What map_pages gave, with the same size. Null is nothing.
void unmap_pages(void* pages, std::size_t size);

}  // namespace windlass
