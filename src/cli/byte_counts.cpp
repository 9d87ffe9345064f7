#include "cli/byte_counts.h"

#include <charconv>
#include <memory>

#include <fmt/format.h>

namespace windlass::cli {

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || number == 0 || number >= kMost) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  if (text.ends_with("iB")) text.remove_suffix(2);
  unsigned shift = 0;
  if (text == "K")
    shift = 10;
  else if (text == "M")
    shift = 20;
  else if (text == "G")
    shift = 30;
  else if (!text.empty())
    return std::nullopt;
  if (number >= kMost >> shift) return std::nullopt;
  return number << shift;
}

CLI::Option* add_optional_bytes(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& bytes,
                                std::uint64_t otherwise, const std::string& help) {
  // A flag, so that `record --alloc ./app` does not take the command for a number.
  static constexpr std::string_view kNone = "true";  // what CLI11 has for a flag without a value
  auto text = std::make_shared<std::string>();
  return command.add_flag(name, *text, help)
      ->check([](const std::string& given) {
        if (given == kNone || parse_bytes(given)) return std::string();
        return fmt::format("{} is no number of bytes above 0, such as 4096, 512K or 1M", given);
      })
      ->each([text, &bytes, otherwise](const std::string& given) { bytes = parse_bytes(given).value_or(otherwise); });
}

}  // namespace windlass::cli
