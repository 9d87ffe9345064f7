// TextWriter: whatever the way a piece is written in, and wherever the buffer ends, the bytes are those of the pieces.
#include "base/text_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace windlass {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;  // bytes the writer keeps: pieces cross its end at every offset

// Each way of writing a piece, and what it writes.
constexpr int kWays = 7;
constexpr std::size_t kPiece = 64;  // bytes of the longest
std::string write(TextWriter& out, int way, char first, std::size_t size) {
  char piece[kPiece];
  for (std::size_t i = 0; i < sizeof piece; ++i) piece[i] = static_cast<char>(first + i % 13);
  const std::string_view text(piece, size);
  switch (way) {
    case 0: out.text("  literal="); return "  literal=";
    case 1: {
      char* const to = out.room(sizeof piece);  // all of it is written, a part of it kept
      std::memcpy(to, piece, sizeof piece);
      out.wrote(to + size);
      return std::string(text);
    }
    case 2: out.text(text); return std::string(text);
    case 3: out.character(first); return {first};
    case 4: out.decimal(std::uint64_t{1} << size % 64); return std::to_string(std::uint64_t{1} << size % 64);
    case 5: out.hex(std::uint64_t{1} << size % 64); return fmt::format("{:#x}", std::uint64_t{1} << size % 64);
    default:
      out.hex(size % 2 == 0 ? 0 : ~std::uint64_t{0} / (size + 1));
      return fmt::format("{:#x}", size % 2 == 0 ? 0 : ~std::uint64_t{0} / (size + 1));
  }
}

TEST(TextWriter, WritesEveryPieceOnceWhereverTheBufferEnds) {
  const std::string filler(kBuffer, '.');
  for (int way = 0; way < kWays; ++way) {
    for (std::size_t left = 0; left <= 2 * kPiece; ++left) {
      std::string written, expected(filler, left);
      {
        TextWriter out(&written);
        out.text(expected);
        for (std::size_t size = 0; size <= kPiece; ++size)
          expected += write(out, way, static_cast<char>('a' + size % 13), size);
        out.text(filler);
      }
      ASSERT_TRUE(written == expected + filler) << "way " << way << ", " << left << " bytes left";
    }
  }
}

TEST(TextWriter, WritesNumbersWithTheirSigns) {
  std::string written;
  {
    TextWriter out(&written);
    for (const std::int64_t value :
         {std::int64_t{0}, std::int64_t{16}, std::int64_t{-16}, std::int64_t{90210}, INT64_MIN})
      out.decimal(value), out.text(" "), out.signed_decimal(value), out.text("\n");
  }
  EXPECT_EQ(written, "0 +0\n16 +16\n-16 -16\n90210 +90210\n-9223372036854775808 -9223372036854775808\n");
}

TEST(TextWriter, WritesTextsLongerThanItsBuffer) {
  const std::string longer(2 * kBuffer + 5, 'x');
  std::string written;
  {
    TextWriter out(&written);
    out.text("before ");
    out.text(longer);
    out.text(" behind");
  }
  EXPECT_TRUE(written == "before " + longer + " behind");
}

}  // namespace
}  // namespace windlass
