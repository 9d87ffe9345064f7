// A POSIX extended regular expression that may come from anyone. The standard library's are slower, and recurse once a
// character.
#pragma once

#include <regex.h>

#include <cstddef>
#include <string>

namespace windlass::exporter {

// regcomp() recurses once a bracket, and copies what is repeated. So larger expressions are refused before, and so are
// back references: they take exponential time.
class Pattern {
 public:
  static constexpr int kMostRepeated = 2;           // as of a+?: regcomp() recurses for each
  static constexpr std::size_t kMostNested = 64;    // brackets within brackets
  static constexpr std::size_t kMostCopied = 2048;  // characters, once repetitions are written out
  // regexec() can take time with the square of a text's length. So longer names are searched in pieces, each of which
  // begins in the one before. A longer match than the overlap may not be found there.
  static constexpr std::size_t kPiece = 4096, kOverlap = 2048;

  explicit Pattern(const std::string& text);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // False for all names if there is an error.
  [[nodiscard]] bool fits(const std::string& name) const;
  // Empty: the expression is one.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  regex_t compiled_{};
  std::string error_;
};

}  // namespace windlass::exporter
