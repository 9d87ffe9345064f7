// Names that drive a terminal, begin a line of their own, turn a line around, or are no text; and a judge of text for
// people. The judge reads bytes by itself, and shares no code with the tested functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace windlass::test {

// At most 15 bytes each, as a thread's name has. None has a slash.
inline const std::vector<std::string>& hostile_names() {
  static const std::vector<std::string> names = {
      "a\x1b]0;title\x07",  // ESC and BEL: a terminal's title
      "b\nTID 1:\r\t\x7f",  // lines of its own, DEL
      "c\xc2\x9b"
      "31m\xc2\x85\xc2\x80",  // C1 as characters
      "d\x9b"
      "31m\x85\xff\xfe\xc0\x80",                        // C1 as bytes, no UTF-8
      "e\xe2\x80\xae\xe2\x81\xa6;f 1",                  // U+202E, U+2066 and what a folded stack is cut by
      "f\xe2\x80\x8b\xd8\x9c\xef\xbb\xbf\xe2\x80\xa8",  // U+200B, U+061C, U+FEFF, U+2028
      "g\xf3\xa0\x81\x81</script>",                     // U+E0041, a tag
      "h\"\\'`$(x)<b>"};
  return names;
}

// A file's name with all of them.
inline std::string hostile_file_name() {
  std::string all;
  for (const std::string& name : hostile_names()) all += name;
  std::erase(all, '/');
  return all;
}

// What of `text` may not be printed, as "0x1b at 17: the text around it"; empty: nothing.
inline std::string forbidden_in(std::string_view text) {
  const auto hidden = [](std::uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
           (code >= 0xd800 && code <= 0xdfff) || (code >= 0xe0000 && code <= 0xe0fff) || code > 0x10ffff;
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) {
      return at + i < text.size() ? static_cast<std::uint8_t>(text[at + i]) : 0U;
    };
    const std::size_t more = byte(0) < 0x80 ? 0 : byte(0) < 0xe0 ? 1 : byte(0) < 0xf0 ? 2 : 3;
    std::uint32_t code = more == 0 ? byte(0) : byte(0) & 0x3fU >> more;
    bool valid = byte(0) < 0x80 || (byte(0) >= 0xc2 && byte(0) < 0xf5);
    for (std::size_t i = 1; i <= more; ++i) {
      valid = valid && (byte(i) & 0xc0) == 0x80;
      code = code << 6 | (byte(i) & 0x3f);
    }
    const std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (!valid || code < least[more] || (code != '\n' && hidden(code)))
      return fmt::format("{:#x} at {}: {}", code, at, text.substr(at > 40 ? at - 40 : 0, 80));
    at += more + 1;
  }
  return "";
}

}  // namespace windlass::test
