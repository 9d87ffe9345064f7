// Lengths of time as people write them: "2", "2s", "500ms", "1.5m", "1h", "7d".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace windlass::cli {

// Seconds, above 0; a number without a unit is seconds.
[[nodiscard]] std::optional<double> parse_duration(std::string_view text);

// An option whose value is such a length, in seconds.
CLI::Option* add_duration(CLI::App& command, const std::string& names, double& seconds, const std::string& help);

// An option whose value is a time since a begin: such a length, or 0. In ns.
CLI::Option* add_time(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& nanoseconds,
                      const std::string& help);

// A flag that may have such a length, `--name=10ms`: in ns, 0 without one.
CLI::Option* add_optional_duration(CLI::App& command, const std::string& name,
                                   std::optional<std::uint64_t>& nanoseconds, const std::string& help);

}  // namespace windlass::cli
