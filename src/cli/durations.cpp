#include "cli/durations.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace windlass::cli {

std::optional<double> parse_duration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},   {"s", 1},    {"ms", 1e-3}, {"us", 1e-6},
                                                            {"m", 60}, {"h", 3600}, {"d", 86400}};
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  for (const auto& [unit, in_seconds] : kUnits) {
    const double seconds = number * in_seconds;
    if (text == unit && seconds > 0 && std::isfinite(seconds)) return seconds;
  }
  return std::nullopt;
}

namespace {

std::string refuse_duration(const std::string& text) {
  if (parse_duration(text)) return {};
  return fmt::format("{} is no number of seconds above 0, nor a length of time such as 500ms or 1m", text);
}

// "0", "0.0", "0s"
bool is_zero(std::string_view text) {
  if (text.empty() || text.front() != '0') return false;
  const std::size_t digits = std::min(text.find_first_not_of("0."), text.size());
  return digits == text.size() || parse_duration("1" + std::string(text.substr(digits)));
}

std::uint64_t nanoseconds_of(const std::string& text) {
  return static_cast<std::uint64_t>(std::llround(parse_duration(text).value_or(0) * 1e9));
}

}  // namespace

CLI::Option* add_time(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& nanoseconds,
                      const std::string& help) {
  return command
      .add_option_function<std::string>(
          name, [&nanoseconds](const std::string& text) { nanoseconds = nanoseconds_of(text); }, help)
      ->check([](const std::string& text) { return is_zero(text) ? std::string() : refuse_duration(text); })
      ->type_name("TIME");
}

CLI::Option* add_duration(CLI::App& command, const std::string& names, double& seconds, const std::string& help) {
  return command
      .add_option_function<std::string>(
          names, [&seconds](const std::string& text) { seconds = parse_duration(text).value_or(0); }, help)
      ->check(refuse_duration)
      ->type_name("TIME");
}

CLI::Option* add_optional_duration(CLI::App& command, const std::string& name,
                                   std::optional<std::uint64_t>& nanoseconds, const std::string& help) {
  // A flag, so that `record --off-cpu ./app` does not take the command for a time.
  static constexpr std::string_view kAny = "true";  // what CLI11 has for a flag without a value
  auto text = std::make_shared<std::string>();
  return command.add_flag(name, *text, help)
      ->check([](const std::string& given) { return given == kAny ? std::string() : refuse_duration(given); })
      ->each([text, &nanoseconds](const std::string& given) { nanoseconds = nanoseconds_of(given); });
}

}  // namespace windlass::cli
