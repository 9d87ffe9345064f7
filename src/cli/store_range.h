// A store given as FILE or URL, or with @RANGE behind it: which of its times are read.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace windlass::cli {

struct TimeSpan {
  std::uint64_t from = 0, to = ~std::uint64_t{0};  // Unix time in ns; `to` is behind the range
  bool operator==(const TimeSpan&) const = default;
};

// "-1h": the last hour. "2026-11-27T14:05": that minute; a day or a second in the same way. "A..B": from the beginning
// of A to that of B; without A or B there is no bound. Times are local unless they end with Z. Nothing: no range.
[[nodiscard]] std::optional<TimeSpan> parse_range(std::string_view text, std::uint64_t now_ns);

struct StoreFile {
  std::string path;   // or the URL
  std::string range;  // empty: all
};
// `text` as it was given to a command, if it names a store. A file whose name has an @ is found, too.
[[nodiscard]] std::optional<StoreFile> store_file(const std::string& text);

// Of the first bytes of a file.
[[nodiscard]] bool is_store(std::string_view bytes);

}  // namespace windlass::cli
