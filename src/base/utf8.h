// UTF-8 that may be damaged: names in files may be any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windlass {

struct Utf8Character {
  char32_t code = 0;
  std::size_t length = 0;  // in bytes; 0: no valid sequence (Unicode 15, table 3-7)
};

// What `text` begins with.
[[nodiscard]] Utf8Character utf8_character(std::string_view text);
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) { return utf8_character(text).length; }

// Adds a character, which may be a surrogate. Its bits above 21 do not count.
void append_utf8(std::string& to, char32_t code);

// Not to be shown as it is: it drives a terminal, ends a line, turns text around or is not seen. Those are (Unicode 15)
// the control characters, the line and paragraph separators, Bidi_Control and Default_Ignorable_Code_Point.
[[nodiscard]] bool is_hidden(char32_t code);

}  // namespace windlass
