// The terminal of `windlass top`, by ncurses: keys and lines, nothing of what they mean.
#pragma once

#include <cstddef>
#include <expected>
#include <optional>
#include <span>
#include <string>

#include "profiler/export/top_model.h"

namespace windlass::cli {

// One at a time. Signals that would end or stop the program must be blocked or ignored meanwhile.
class TopTerminal {
 public:
  // Takes the terminal of standard input and output. An error: what is missing, and the way out.
  static std::expected<TopTerminal, std::string> open();
  TopTerminal(TopTerminal&& other) noexcept;
  TopTerminal& operator=(TopTerminal&&) = delete;
  ~TopTerminal();  // gives it back

  [[nodiscard]] std::size_t width() const;
  [[nodiscard]] std::size_t height() const;
  // After a change of its size.
  void resize();
  // The next key that has been pressed, if any.
  [[nodiscard]] std::optional<exporter::TopKey> next_key();
  void draw(std::span<const exporter::TopLine> lines);

 private:
  TopTerminal() = default;
  void draw_text(const std::string& text, std::size_t& column) const;

  bool open_ = false, colours_ = false, utf8_ = false;
};

}  // namespace windlass::cli
