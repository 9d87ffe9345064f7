// The dynamic symbols of an ELF image that was put together from memory, which has no section headers to find them by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace windlass::walk {

// Appends section headers of .dynsym, .dynstr and notes, the former found by PT_DYNAMIC and counted by the hash table,
// so that readers of files find the symbols. Nothing is appended where they are not in the bytes. `bias`: of where the
// image was in memory, since dynamic linkers add it to the addresses that they find in PT_DYNAMIC.
void add_symbol_sections(std::vector<std::byte>& image, std::uint64_t bias);

}  // namespace windlass::walk
