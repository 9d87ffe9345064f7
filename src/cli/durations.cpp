#include "cli/durations.h"

#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace windlass::cli {

std::optional<double> parse_duration(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
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

CLI::Option* add_duration(CLI::App& command, const std::string& names, double& seconds, const std::string& help) {
  return command
      .add_option_function<std::string>(
          names, [&seconds](const std::string& text) { seconds = parse_duration(text).value_or(0); }, help)
      ->check([](const std::string& text) {
        return parse_duration(text)
                   ? std::string()
                   : fmt::format("{} is no number of seconds above 0, nor a length of time such as 500ms or 1m", text);
      })
      ->type_name("TIME");
}

}  // namespace windlass::cli
