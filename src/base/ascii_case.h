// Names that are compared without the case of ASCII letters: those of files on Windows, words of protocols.
#pragma once

#include <algorithm>
#include <string_view>

namespace windlass {

// Whatever the locale. Constant time.
[[nodiscard]] constexpr char ascii_lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

[[nodiscard]] constexpr bool equal_without_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, ascii_lower, ascii_lower);
}

[[nodiscard]] constexpr bool ends_with_without_case(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && equal_without_case(text.substr(text.size() - end.size()), end);
}

}  // namespace windlass
