// Lines of source files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace windlass::annotate {

// Reads each file once. Not thread-safe.
class SourceText {
 public:
  // A path that begins with `first` is looked for with `second` in its place. The first pair that fits counts; files
  // are looked for where the debug information says, too.
  using Moves = std::vector<std::pair<std::string, std::string>>;
  // A descriptor of a file that is in none of these places; -1: there is none. An empty function: nobody is asked.
  using Ask = std::function<int(const std::string& path)>;
  explicit SourceText(Moves moves, Ask ask = {}) : moves_(std::move(moves)), ask_(std::move(ask)) {}

  // Line 1 is the first. Empty: the file cannot be read, or has fewer lines.
  [[nodiscard]] std::string_view line(const std::string& path, std::uint32_t number);
  // True if the file could be read.
  [[nodiscard]] bool has(const std::string& path) { return !lines_of(path).empty(); }

  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

 private:
  struct File {
    std::string text;
    std::vector<std::string_view> lines;
  };
  const std::vector<std::string_view>& lines_of(const std::string& path);
  [[nodiscard]] std::vector<std::string> places_of(const std::string& path) const;

  Moves moves_;
  Ask ask_;
  std::map<std::string, File> files_;
};

}  // namespace windlass::annotate
