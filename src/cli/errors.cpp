#include "cli/errors.h"

#include <strings.h>

#include <cstring>

#include <fmt/format.h>

#include "cli/say.h"

namespace windlass::cli {

std::string text_of(const Error& error) {
  if (error.code == ErrorCode::kSystem) {
    const bool twice = strcasecmp(error.what, std::strerror(static_cast<int>(error.detail))) == 0;
    return twice ? error.what : error.text();
  }
  if (error.where != 0) return error.text();
  return error.detail != 0 ? fmt::format("{} ({:#x})", error.what, error.detail) : error.what;
}

void say_error(std::string_view subject, const Error& error, std::string_view way_out) {
  say("windlass: {}: {}{}{}\n", subject, text_of(error), way_out.empty() ? "" : ". Way out: ", way_out);
}

void say_unwritten(std::string_view output, int error) {
  say("windlass: cannot write {}: {}\n", output, std::strerror(error));
}

}  // namespace windlass::cli
