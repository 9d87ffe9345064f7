// Lines of a client of the Model Context Protocol: newline-delimited JSON-RPC 2.0 on a descriptor.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace windlass::cli {

struct McpLine {
  std::string text;
  bool too_long = false;  // then `text` is empty
};

// Not thread-safe.
class McpInput {
 public:
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;
  static constexpr std::size_t kMostWaiting = 256;  // lines that are read ahead

  explicit McpInput(int fd) : fd_(fd) {}

  // Waits for a line. Nothing: the client has closed its end.
  [[nodiscard]] std::optional<McpLine> next();
  // The descriptor to poll while something else is done; -1: no more is read ahead now.
  [[nodiscard]] int wanted() const { return ended_ || waiting_.size() >= kMostWaiting ? -1 : fd_; }
  // Reads once. To be called when the descriptor is readable.
  void read_some();
  // Whole lines that next() will return.
  [[nodiscard]] std::deque<McpLine>& waiting() { return waiting_; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  void end_line();

  int fd_;
  bool ended_ = false;
  McpLine line_;  // its beginning
  std::deque<McpLine> waiting_;
};

}  // namespace windlass::cli
