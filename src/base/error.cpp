#include "windlass/error.h"

#include <cstring>

#include <fmt/format.h>

namespace windlass {

void Error::text_to(char* to, std::size_t size) const {
  if (size == 0) return;
  const auto write = [&](fmt::string_view format, const auto&... values) {
    *fmt::vformat_to_n(to, size - 1, format, fmt::make_format_args(values...)).out = 0;
  };
  if (code == ErrorCode::kSystem) {
    const char* reason = strerrordesc_np(static_cast<int>(detail));  // unlike strerror, for any thread
    write("{}: {}", what, reason != nullptr ? reason : "unknown error");
  } else if (detail != 0) {
    write("{:#x}: {} ({:#x})", where, what, detail);
  } else {
    write("{:#x}: {}", where, what);
  }
}

std::string Error::text() const {
  char text[1024];  // `what` is a literal of ours: a sentence
  text_to(text, sizeof text);
  return text;
}

}  // namespace windlass
