// What llvm-readobj --unwind prints, record for record.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "differential/peer.h"

namespace windlass::peer {

inline constexpr const char* kReadobj = "llvm-readobj-22";  // 14 and 19 crash on chained x64 information; 14 prints
                                                            // ARM64's pac_sign_lr as a bad opcode

// One line of a record.
struct ReadobjLine {
  std::string_view text;  // without its indentation
  std::string_view key;   // up to ": ", or all of it
  std::string_view value;
  [[nodiscard]] bool opens() const { return text.ends_with("{") || text.ends_with("["); }
  [[nodiscard]] bool closes() const { return text == "}" || text == "]"; }
};

class ReadobjRecords {
 public:
  explicit ReadobjRecords(const std::string& file) : lines_(std::string(kReadobj) + " --unwind '" + file + "' 2>&1") {}

  // The next record, put in words by append(text, line) for each of its lines; nothing behind the last.
  template <typename Append>
  std::optional<std::string> next(Append&& append) {
    while (auto line = lines_.next())
      if (trim(*line) == "RuntimeFunction {") return record(append);
    return std::nullopt;
  }

  // "name (0x1234)" -> "0x1234"; "0x1234" stays.
  static std::string address(std::string_view text) {
    const auto open = text.rfind('(');
    const auto close = text.rfind(')');
    return open == std::string_view::npos || close < open ? std::string(text)
                                                          : std::string(text.substr(open + 1, close - open - 1));
  }

 private:
  static std::string_view trim(std::string_view line) {
    const auto start = line.find_first_not_of(' ');
    return start == std::string_view::npos ? std::string_view() : line.substr(start);
  }
  template <typename Append>
  std::string record(Append&& append) {
    std::string text;
    unsigned depth = 1;
    while (depth > 0) {
      const auto next = lines_.next();
      if (!next) break;
      ReadobjLine line{trim(*next), {}, {}};
      const auto colon = line.text.find(": ");
      line.key = line.text.substr(0, std::min(colon, line.text.size()));
      if (colon != std::string_view::npos) line.value = line.text.substr(colon + 2);
      if (line.opens()) ++depth;
      if (line.closes()) --depth;
      append(text, line);
    }
    return text;
  }

  Lines lines_;
};

}  // namespace windlass::peer
