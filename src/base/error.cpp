#include "windlass/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/system_reason.h"

namespace windlass {

void Error::text_to(char* to, std::size_t size) const {
  if (size == 0) return;
  const auto write = [&](fmt::string_view format, const auto&... values) {
    *fmt::vformat_to_n(to, size - 1, format, fmt::make_format_args(values...)).out = 0;
  };
  if (code == ErrorCode::kSystem) {
    char reason[256];
    system_reason(detail, reason, sizeof reason);
    write("{}: {}", what, reason);
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

void detail::no_value(const Error& error) {
  char text[1024];
  error.text_to(text, sizeof text);
  std::fprintf(stderr, "%s\n", text);
  std::abort();
}

}  // namespace windlass
