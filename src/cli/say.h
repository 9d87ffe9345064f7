// Messages to people, on stderr.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/shown_format.h"

namespace windlass::cli {

// Where messages go in place of stderr, if anywhere: `mcp` answers with them.
inline std::string* messages_to = nullptr;

// A message that cannot be written (a full disk, a reader that has gone) costs no data: it is let go.
inline void say_text(const std::string& text) {
  if (messages_to != nullptr)
    *messages_to += text;
  else
    std::fwrite(text.data(), 1, text.size(), stderr);
}

// Strings among `parts` are shown() as others made them.
template <typename... Parts>
void say(fmt::format_string<Parts...> format, Parts&&... parts) {
  say_text(shown_format(format, std::forward<Parts>(parts)...));
}

}  // namespace windlass::cli
