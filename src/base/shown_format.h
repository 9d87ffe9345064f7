// fmt::format for people: what comes in as a string is shown() as others made it, the format is ours.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "base/shown.h"

namespace windlass {
namespace detail {

template <typename Part>
decltype(auto) shown_part(const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>)
    return shown(part);
  else
    return part;
}
inline std::string vformat_shown(fmt::string_view format, const auto&... parts) {
  return fmt::vformat(format, fmt::make_format_args(parts...));
}

}  // namespace detail

template <typename... Parts>
[[nodiscard]] std::string shown_format(fmt::format_string<Parts...> format, Parts&&... parts) {
  return detail::vformat_shown(format, detail::shown_part(parts)...);
}

}  // namespace windlass
