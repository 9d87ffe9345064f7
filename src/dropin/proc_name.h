// The name of the function at an address of the own process, read from its module's file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace windlass::dropin {

// The symbol in .symtab, or else .dynsym, that covers `address`, as it is spelled there. `begin`: the symbol's address.
// `whole`: false where `size` (with the terminator) was too small. False where nothing is known. Linear in the number
// of symbols; opens and maps the file, and allocates nothing: async-signal-safe.
bool proc_name(std::uint64_t address, char* name, std::size_t size, std::uint64_t& begin, bool& whole);

}  // namespace windlass::dropin
