#include "cli/store_range.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "cli/durations.h"
#include "profiler/store/open_store.h"

namespace windlass::cli {
namespace {

constexpr std::string_view kDatabase("SQLite format 3\0", 16);

// Of a time of the calendar, in UTC or here. Nothing if there is none, as on February 30; of a `carried` time that is
// the day behind.
std::optional<std::uint64_t> unix_ns(std::tm parts, bool is_utc, bool carried = false) {
  parts.tm_isdst = -1;
  const std::tm given = parts;
  const std::time_t time = is_utc ? timegm(&parts) : mktime(&parts);
  if (time < 0 || time > 9'000'000'000 || (!carried && parts.tm_mday != given.tm_mday)) return std::nullopt;
  return static_cast<std::uint64_t>(time) * 1'000'000'000;
}

// "2026-11-27", "2026-11-27T14:05", "2026-11-27T14:05:30", each also with Z.
std::optional<TimeSpan> parse_iso(std::string text) {
  const bool is_utc = text.ends_with('Z');
  if (is_utc) text.pop_back();
  constexpr std::pair<const char*, int std::tm::*> kForms[] = {
      {"%Y-%m-%dT%H:%M:%S", &std::tm::tm_sec}, {"%Y-%m-%dT%H:%M", &std::tm::tm_min}, {"%Y-%m-%d", &std::tm::tm_mday}};
  for (const auto& [form, smallest] : kForms) {
    std::tm begin{};
    const char* end = strptime(text.c_str(), form, &begin);
    if (end == nullptr || *end != '\0') continue;
    std::tm next = begin;
    ++(next.*smallest);
    const auto from = unix_ns(begin, is_utc), to = unix_ns(next, is_utc, true);
    return from && to ? std::optional(TimeSpan{*from, *to}) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<TimeSpan> parse_moment(std::string_view text, std::uint64_t now_ns) {
  if (!text.starts_with('-')) return parse_iso(std::string(text));
  const auto seconds = parse_duration(text.substr(1));
  if (!seconds || *seconds > 1e10) return std::nullopt;
  const auto before = static_cast<std::uint64_t>(std::llround(*seconds * 1e9));
  return TimeSpan{now_ns - std::min(now_ns, before), ~std::uint64_t{0}};
}

}  // namespace

std::optional<TimeSpan> parse_range(std::string_view text, std::uint64_t now_ns) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return parse_moment(text, now_ns);
  TimeSpan span;
  const auto take = [&](std::string_view moment, std::uint64_t& bound) {
    if (moment.empty()) return true;
    const auto parsed = parse_moment(moment, now_ns);
    if (parsed) bound = parsed->from;
    return parsed.has_value();
  };
  if (!take(text.substr(0, dots), span.from) || !take(text.substr(dots + 2), span.to) || span.from >= span.to)
    return std::nullopt;
  return span;
}

bool is_store(std::string_view bytes) {
  return bytes.starts_with(kDatabase);  // a new store's other marks may be in the file beside it, -wal
}

std::optional<StoreFile> store_file(const std::string& text) {
  const auto names_store = [](const std::string& path) {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(path, unknown)) return false;  // what is read of a pipe is gone
    std::array<char, kDatabase.size()> head{};
    std::ifstream file(path, std::ios::binary);
    file.read(head.data(), head.size());
    return is_store({head.data(), static_cast<std::size_t>(file.gcount())});
  };
  const std::size_t mark = text.rfind('@');
  if (store::is_clickhouse_url(text)) {
    const std::size_t database = text.find('/', text.find("://") + 3);  // a mark before it belongs to the user
    if (mark == std::string::npos || database == std::string::npos || mark < database) return StoreFile{text, {}};
    return StoreFile{text.substr(0, mark), text.substr(mark + 1)};
  }
  if (mark != std::string::npos && names_store(text.substr(0, mark)))
    return StoreFile{text.substr(0, mark), text.substr(mark + 1)};
  if (text != "-" && names_store(text)) return StoreFile{text, {}};
  return std::nullopt;
}

}  // namespace windlass::cli
