// JSON strings, written streaming: what the writers here need and no more.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace windlass::exporter {

// Appends `text` as a JSON string (RFC 8259). '<' is escaped, so that no name can end a <script> element; bytes that
// are not UTF-8 become U+FFFD.
void append_json(std::string& out, std::string_view text);
[[nodiscard]] inline std::string json_string(std::string_view text) {
  std::string out;
  append_json(out, text);
  return out;
}
// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

}  // namespace windlass::exporter
