// Code in no image of a Windows process whose list of function tables is in memory, as in full minidumps.
#pragma once

#include <cstdint>

#include "windlass/target.h"

namespace windlass::walk {

// Adds what is registered by the list of the ntdll.dll at `base` where no module is. Does nothing if it is another
// image, or the list is not in the memory. A callback, which cannot be asked here, is named in a note.
void add_table_code(Target& target, std::uint64_t base);

}  // namespace windlass::walk
