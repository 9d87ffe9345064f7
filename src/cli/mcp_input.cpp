#include "cli/mcp_input.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace windlass::cli {

std::optional<McpLine> McpInput::next() {
  while (waiting_.empty() && !ended_) read_some();
  if (waiting_.empty()) return std::nullopt;
  McpLine line = std::move(waiting_.front());
  waiting_.pop_front();
  return line;
}

void McpInput::read_some() {
  char buffer[65536];
  const ssize_t got = ::read(fd_, buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    ended_ = true;
    return;
  }
  std::string_view rest(buffer, static_cast<std::size_t>(got));
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view piece = rest.substr(0, end);
    line_.too_long |= piece.size() > kLongestLine - line_.text.size();
    if (line_.too_long)
      line_.text.clear();
    else
      line_.text += piece;
    if (end == rest.npos) return;
    end_line();
    rest.remove_prefix(end + 1);
  }
}

void McpInput::end_line() {
  if (line_.text.ends_with('\r')) line_.text.pop_back();
  if (line_.too_long || !line_.text.empty()) waiting_.push_back(std::move(line_));
  line_ = {};
}

}  // namespace windlass::cli
