// Numbers of bytes as people write them: "4096", "512K", "1M", "64KiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace windlass::cli {

// Above 0, and below 2^40.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);

// A flag that may have such a number, `--name=64K`; `otherwise` without one.
CLI::Option* add_optional_bytes(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& bytes,
                                std::uint64_t otherwise, const std::string& help);

}  // namespace windlass::cli
