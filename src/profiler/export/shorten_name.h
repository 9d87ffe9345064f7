// Function names cut to a width for people, keeping what distinguishes functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windlass::exporter {

// Columns a terminal needs for UTF-8 text, taking every code point as one.
[[nodiscard]] std::size_t columns_of(std::string_view text);

// The bytes of a name before its parameters: "a::f" of "a::f(int, char) const". "operator()" and "(anonymous
// namespace)" are no parameters. Nor are brackets in the middle of a name ("main.(*T).run", "f(int)::{lambda()#1}").
[[nodiscard]] std::size_t length_without_parameters(std::string_view name);

// At most `width` columns: as it is; else without parameters; else with template arguments as <…>; else with the middle
// left out. It is shown() (base/shown.h), so that no name can drive the terminal.
[[nodiscard]] std::string shorten_name(std::string_view name, std::size_t width);

// The beginning of a line of text, at most `width` columns, shown(); tabs become spaces.
[[nodiscard]] std::string cut_line(std::string_view line, std::size_t width);

}  // namespace windlass::exporter
