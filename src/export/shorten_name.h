// Function names cut to a width for people, keeping what distinguishes functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windlass::exporter {

// Columns a terminal needs for UTF-8 text, taking every code point as one.
[[nodiscard]] std::size_t columns_of(std::string_view text);

// At most `width` columns: as it is; else without parameters; else with template arguments as <…>; else with the middle
// left out. Control characters and bytes that are not UTF-8 become '?', so that no name can drive the terminal.
[[nodiscard]] std::string shorten_name(std::string_view name, std::size_t width);

}  // namespace windlass::exporter
