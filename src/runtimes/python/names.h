// What a code object says of itself: its function's name, its file, the line of an instruction.
//
// python/cpython: Include/cpython/unicodeobject.h (PyASCIIObject); Objects/lnotab_notes.txt of 3.9 and 3.10,
// Objects/locations.md of 3.11 and later.
#pragma once

#include <cstdint>
#include <string>

#include "lookup/sources/name_source.h"
#include "runtimes/python/layout.h"
#include "windlass/bytes.h"

namespace windlass::runtimes::python {

// As long as the frame's code is what it was: kNotFound where it is not, or not to be read any more.
[[nodiscard]] Expected<sources::NamedFunction> read_name(const Memory& memory, const Layout& layout,
                                                         const wl_interpreted_frame& frame);

// The line at a place (wl_interpreted_frame::place) by a table; 0: it says that there is none.
[[nodiscard]] std::uint32_t line_at(Lines lines, ByteView table, std::uint32_t first_line, std::int32_t place);

}  // namespace windlass::runtimes::python
