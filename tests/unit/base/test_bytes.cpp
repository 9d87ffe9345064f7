#include "windlass/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace windlass {
namespace {

template <std::size_t N>
ByteView view(const std::array<std::uint8_t, N>& bytes) {
  return ByteView(std::span<const std::uint8_t>(bytes), 0x100);
}

TEST(ByteView, NamesTheAbsoluteOffsetOfAFailedRead) {
  const std::array<std::uint8_t, 4> bytes{1, 2, 3, 4};
  EXPECT_EQ(view(bytes).at<std::uint32_t>(0).value(), 0x04030201u);
  const auto past = view(bytes).at<std::uint16_t>(3);
  ASSERT_FALSE(past);
  EXPECT_EQ(past.error().code, ErrorCode::kTruncated);
  EXPECT_EQ(past.error().where, 0x103u);
  EXPECT_FALSE(view(bytes).sub(~0ull, 2));
  EXPECT_FALSE(view(bytes).sub(2, ~0ull));
}

TEST(ByteCursor, StringsBehindEachOther) {
  const std::array<std::uint8_t, 7> bytes{'z', 'R', 0, 0, 'e', 'h', 0};
  ByteCursor cursor(view(bytes));
  EXPECT_EQ(cursor.string().value(), "zR");
  EXPECT_EQ(cursor.position(), 3u) << "its NUL is passed";
  EXPECT_EQ(cursor.string().value(), "");
  EXPECT_EQ(cursor.string().value(), "eh");
  EXPECT_TRUE(cursor.at_end());
  EXPECT_FALSE(cursor.string());
}

TEST(ByteCursor, Uleb) {
  const std::array<std::uint8_t, 3> classic{0xe5, 0x8e, 0x26};  // DWARF 5 appendix C example
  EXPECT_EQ(ByteCursor(view(classic)).uleb().value(), 624485u);
  const std::array<std::uint8_t, 10> biggest{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
  EXPECT_EQ(ByteCursor(view(biggest)).uleb().value(), ~0ull);
  const std::array<std::uint8_t, 10> too_big{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
  EXPECT_FALSE(ByteCursor(view(too_big)).uleb());
  const std::array<std::uint8_t, 12> padded{0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
  EXPECT_EQ(ByteCursor(view(padded)).uleb().value(), 1u);
  const std::array<std::uint8_t, 2> cut{0x80, 0x80};
  EXPECT_EQ(ByteCursor(view(cut)).uleb().error().code, ErrorCode::kTruncated);
}

TEST(ByteCursor, Sleb) {
  const std::array<std::uint8_t, 2> minus_128{0x80, 0x7f};
  EXPECT_EQ(ByteCursor(view(minus_128)).sleb().value(), -128);
  const std::array<std::uint8_t, 1> minus_1{0x7f};
  EXPECT_EQ(ByteCursor(view(minus_1)).sleb().value(), -1);
  const std::array<std::uint8_t, 10> lowest{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f};
  EXPECT_EQ(ByteCursor(view(lowest)).sleb().value(), INT64_MIN);
  const std::array<std::uint8_t, 9> nine_negative{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
  EXPECT_EQ(ByteCursor(view(nine_negative)).sleb().value(), -1);
}

}  // namespace
}  // namespace windlass
