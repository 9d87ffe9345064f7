// Foreign text made safe for a terminal. Names of threads, files and functions can hold control sequences, new lines,
// or marks that turn a line around. All text that Windlass prints for people goes through here.
#pragma once

#include <string>
#include <string_view>

namespace windlass {

// `text` on one line. Hidden characters (utf8.h) and bytes that are no UTF-8 become "\x1b", or "\u{202e}" where they
// are more than a byte.
[[nodiscard]] std::string shown(std::string_view text);
// The same of a text of several lines, as the verifier's log is: tabs and the ends of lines stay.
[[nodiscard]] std::string shown_lines(std::string_view text);

}  // namespace windlass
