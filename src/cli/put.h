// Texts and numbers in one call: put(out, "  +", Hex{row.start}, " repeats every ", function.block, '\n').
#pragma once

#include <concepts>
#include <string_view>

#include "base/text_writer.h"

namespace windlass::cli {

// "0x1f"
struct Hex {
  std::uint64_t value;
};
// "+16" or "-16"
struct Signed {
  std::int64_t value;
};
// In quotes, escaped.
struct JsonString {
  std::string_view text;
};

// Other files add pieces of their own.
inline void put_piece(TextWriter& out, std::string_view text) { out.text(text); }
inline void put_piece(TextWriter& out, Hex piece) { out.hex(piece.value); }
inline void put_piece(TextWriter& out, Signed piece) { out.signed_decimal(piece.value); }
inline void put_piece(TextWriter& out, JsonString piece) { out.json_string(piece.text); }
inline void put_piece(TextWriter& out, std::same_as<char> auto piece) { out.character(piece); }
inline void put_piece(TextWriter& out, std::same_as<bool> auto piece) { out.text(piece ? "true" : "false"); }
template <std::integral Number>
requires(!std::same_as<Number, char> && !std::same_as<Number, bool>) void put_piece(TextWriter& out, Number number) {
  if constexpr (std::signed_integral<Number>)
    out.decimal(std::int64_t{number});
  else
    out.decimal(std::uint64_t{number});
}
// A literal is copied by its size.
template <std::size_t kSize>
[[gnu::always_inline]] inline void put_piece(TextWriter& out, const char (&literal)[kSize]) {
  out.text(literal);
}

template <typename... Pieces>
void put(TextWriter& out, const Pieces&... pieces) {
  (put_piece(out, pieces), ...);
}

}  // namespace windlass::cli
