// TextWriter: whatever the way a piece is written in, and wherever the buffer ends, the bytes are those of the pieces.
#include "base/text_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
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

std::string fixed(double value, int digits) {
  static std::string text;
  static TextWriter out(&text);
  text.clear();
  out.fixed(value, digits);
  out.flush();
  return text;
}

std::string peer_fixed(double value, int digits) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits).ptr};
}

// The standard library rounds exactly, too.
TEST(TextWriter, RoundsNumbersAsTheStandardLibraryDoes) {
  for (const double value : {0.0,
                             -0.0,
                             0.5,
                             1.5,
                             2.5,
                             0.125,
                             0.375,
                             2.675,
                             1.005,
                             99.995,
                             9.5,
                             999999.5,
                             1e-320,
                             5e-324,
                             1e-17,
                             5e-18,
                             4.9e-18,
                             0x1p52,
                             0x1p53,
                             0x1.fffffffffffffp63,
                             0x1p64,
                             1.8446744073709552e19,
                             99999999999999983616.0})
    for (int digits = 0; digits <= 17; ++digits) {
      EXPECT_EQ(fixed(value, digits), peer_fixed(value, digits)) << value << ' ' << digits;
      EXPECT_EQ(fixed(-value, digits), peer_fixed(-value, digits)) << value << ' ' << digits;
    }
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const int digits = static_cast<int>(random() % 18);
    // Any double below 1e20; and decimal fractions of few digits, which are or nearly are halves.
    const double any = std::bit_cast<double>(random() >> 1);
    const double near_half = static_cast<double>(random() % 2'000'000) / 1000 * 5;
    const double value = any < 1e20 && i % 2 == 0 ? any : near_half;
    ASSERT_EQ(fixed(value, digits), peer_fixed(value, digits)) << fmt::format("{:a} {}", value, digits);
  }
}

TEST(TextWriter, WritesNoDigitsOfNumbersThatHaveNone) {
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 3), "inf");
  EXPECT_EQ(fixed(-1e20, 3), "-inf");
  EXPECT_EQ(fixed(std::numeric_limits<double>::quiet_NaN(), 3), "nan");
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
