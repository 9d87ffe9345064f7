#include "profiler/spool/backoff.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <random>
#include <string>

namespace windlass::spool {

using std::chrono::milliseconds;

Backoff::Backoff(const BackoffLimits& limits, std::optional<std::uint64_t> seed)
    : limits_(limits), random_(seed ? *seed : std::uint64_t{std::random_device{}()} << 32 | std::random_device{}()) {}

milliseconds Backoff::failed(std::optional<milliseconds> asked) {
  constexpr unsigned kMostDoublings = 30;
  const unsigned doublings = std::min(failures_++, kMostDoublings);
  const std::int64_t all = std::min<std::int64_t>(limits_.first.count() << doublings, limits_.most.count());
  random_ = random_ * 6364136223846793005 + 1442695040888963407;  // Knuth's, MMIX
  const auto half = static_cast<std::uint64_t>(all / 2);
  const milliseconds own(all - static_cast<std::int64_t>((random_ >> 33) % (half + 1)));
  return asked ? std::max(own, std::min(*asked, limits_.most_asked)) : own;
}

std::optional<milliseconds> parse_retry_after(std::string_view value, std::chrono::system_clock::time_point now) {
  constexpr std::uint64_t kMostSeconds = std::uint64_t{1} << 31;
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\r')) value.remove_suffix(1);
  std::uint64_t seconds = 0;
  const auto read = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (read.ec == std::errc() && read.ptr == value.data() + value.size())
    return std::chrono::seconds(std::min(seconds, kMostSeconds));
  std::tm date{};
  const std::string text(value);
  const char* end = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const auto then = std::chrono::system_clock::from_time_t(::timegm(&date));
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(then - now));
}

}  // namespace windlass::spool
