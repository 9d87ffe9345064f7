#include "cli/store_range.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <utility>

#include "cli/durations.h"

namespace windlass::cli {
namespace {

constexpr std::string_view kDatabase("SQLite format 3\0", 16);
constexpr std::size_t kApplicationAt = 68;  // sqlite.org/fileformat2.html: the application's id
constexpr std::string_view kApplication = "WLS1";

// "2026-11-27", "2026-11-27T14:05", "2026-11-27T14:05:30", each also with Z.
std::optional<TimeSpan> parse_iso(std::string text) {
  const bool is_utc = text.ends_with('Z');
  if (is_utc) text.pop_back();
  constexpr std::pair<const char*, std::uint64_t> kForms[] = {
      {"%Y-%m-%dT%H:%M:%S", 1}, {"%Y-%m-%dT%H:%M", 60}, {"%Y-%m-%d", 86400}};
  for (const auto& [form, lasts] : kForms) {
    std::tm parts{};
    parts.tm_isdst = -1;
    const char* end = strptime(text.c_str(), form, &parts);
    if (end == nullptr || *end != '\0') continue;
    const std::time_t time = is_utc ? timegm(&parts) : mktime(&parts);
    if (time < 0 || time > 9'000'000'000) return std::nullopt;
    const auto begin = static_cast<std::uint64_t>(time);
    return TimeSpan{begin * 1'000'000'000, (begin + lasts) * 1'000'000'000};
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
  return bytes.starts_with(kDatabase) && bytes.size() >= kApplicationAt + kApplication.size() &&
         bytes.substr(kApplicationAt, kApplication.size()) == kApplication;
}

std::optional<StoreFile> store_file(const std::string& text) {
  const auto names_store = [](const std::string& path) {
    std::array<char, kApplicationAt + kApplication.size()> head{};
    std::ifstream file(path, std::ios::binary);
    file.read(head.data(), head.size());
    return is_store({head.data(), static_cast<std::size_t>(file.gcount())});
  };
  const std::size_t mark = text.rfind('@');
  if (mark != std::string::npos && names_store(text.substr(0, mark)))
    return StoreFile{text.substr(0, mark), text.substr(mark + 1)};
  if (text != "-" && names_store(text)) return StoreFile{text, {}};
  return std::nullopt;
}

}  // namespace windlass::cli
