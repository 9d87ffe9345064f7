// UTF-8 that may be damaged: names in files may be any bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace windlass {

// Length of the valid UTF-8 sequence (Unicode 15, table 3-7) at the start of `text`; 0 if there is none.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

}  // namespace windlass
