#include "base/shown.h"

#include <algorithm>

#include "base/utf8.h"

namespace windlass {
namespace {

void append_hex(std::string& to, char32_t value, unsigned digits) {
  while (digits < 8 && value >> 4 * digits != 0) ++digits;
  while (digits-- > 0) to += "0123456789abcdef"[value >> 4 * digits & 15];
}

std::string escaped(std::string_view text, std::string_view kept) {
  // Nearly all texts are plain ASCII.
  const auto* const end = std::ranges::find_if(text, [](char c) { return c < ' ' || c > '~'; });
  const auto plain = static_cast<std::size_t>(end - text.begin());
  std::string result;
  result.reserve(text.size());
  result = text.substr(0, plain);
  text.remove_prefix(plain);
  while (!text.empty()) {
    const Utf8Character character = utf8_character(text);
    const std::size_t length = character.length == 0 ? 1 : character.length;
    if (character.length != 0 && (!is_hidden(character.code) || kept.contains(text[0]))) {
      result += text.substr(0, length);
    } else if (character.code < 0x80) {
      result += "\\x";
      append_hex(result, static_cast<unsigned char>(text[0]), 2);
    } else {
      result += "\\u{";
      append_hex(result, character.code, 2);
      result += '}';
    }
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace

std::string shown(std::string_view text) { return escaped(text, {}); }
std::string shown_lines(std::string_view text) { return escaped(text, "\n\t"); }

}  // namespace windlass
