// Compressed files. The original comes out. Damage and excess size are reported with their place.
#include "formats/image/decompress_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "formats/image/decompress.h"
#include "support/compressed.h"
#include "support/dump_file.h"

namespace windlass::image {
namespace {

using test::Bytes;
using test::compressed;
using test::view;

constexpr Compression kAll[] = {Compression::kGzip, Compression::kXz, Compression::kZstd, Compression::kLz4};
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;

// Every second page compresses well.
Bytes some_bytes(std::size_t size) {
  std::mt19937 random(7);
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    if (i / 4096 % 2 == 0) bytes[i] = static_cast<std::byte>(random());
  return bytes;
}

struct Unpacked {
  Bytes bytes;
  Expected<std::uint64_t> size;
};

Unpacked unpack_all(const Bytes& in, std::uint64_t limit = kPlenty) {
  Unpacked out;
  out.size = unpack(view(in), limit, [&](ByteView piece) -> Expected<void> {
    out.bytes.insert(out.bytes.end(), piece.data(), piece.data() + piece.size());
    return {};
  });
  return out;
}

TEST(DecompressStream, WhatWentInComesOut) {
  const Bytes bytes = some_bytes(1'000'001);
  for (const Compression how : kAll) {
    SCOPED_TRACE(static_cast<int>(how));
    const Bytes packed = compressed(how, bytes);
    EXPECT_EQ(compression_of(view(packed)), how);
    ASSERT_LT(packed.size(), bytes.size());
    const Unpacked out = unpack_all(packed);
    ASSERT_TRUE(out.size) << out.size.error().text();
    EXPECT_EQ(*out.size, bytes.size());
    EXPECT_EQ(out.bytes, bytes);
  }
}

// Memory grows with what comes out: several times here.
TEST(DecompressSection, IsOfTheSizeThatItSays) {
  const Bytes bytes = some_bytes(5'000'001);
  const Bytes packed = compressed(Compression::kZstd, bytes);
  const auto whole = inflate_zstd(view(packed), bytes.size(), kPlenty);
  ASSERT_TRUE(whole) << whole.error().text();
  EXPECT_EQ(*whole, bytes);
  EXPECT_EQ(inflate_zstd(view(packed), bytes.size() + 1, kPlenty).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(inflate_zstd(view(packed), bytes.size(), bytes.size() - 1).error().code, ErrorCode::kLimit);
  const Bytes half(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(packed.size() / 2));
  EXPECT_EQ(inflate_zstd(view(half), bytes.size(), kPlenty).error().code, ErrorCode::kMalformed);
}

TEST(DecompressStream, StreamsBehindEachOtherAreOne) {
  const Bytes first = some_bytes(100'000), second = some_bytes(50'001);
  Bytes both = first;
  both.insert(both.end(), second.begin(), second.end());
  for (const Compression how : kAll) {
    SCOPED_TRACE(static_cast<int>(how));
    Bytes packed = compressed(how, first);
    const Bytes rest = compressed(how, second);
    packed.insert(packed.end(), rest.begin(), rest.end());
    const Unpacked out = unpack_all(packed);
    ASSERT_TRUE(out.size) << out.size.error().text();
    EXPECT_EQ(out.bytes, both);
  }
}

TEST(DecompressStream, WhatIsCutOffSaysWhere) {
  const Bytes bytes = some_bytes(1'000'000);
  for (const Compression how : kAll) {
    SCOPED_TRACE(static_cast<int>(how));
    const Bytes packed = compressed(how, bytes);
    for (const std::size_t size : {std::size_t{6}, packed.size() / 2, packed.size() - 1}) {
      const Unpacked out = unpack_all(Bytes(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size)));
      ASSERT_FALSE(out.size) << size;
      EXPECT_EQ(out.size.error().code, ErrorCode::kTruncated) << size;
      EXPECT_EQ(out.size.error().where, size);
      EXPECT_EQ(out.size.error().detail, out.bytes.size());
    }
  }
}

TEST(DecompressStream, DamageSaysWhere) {
  const Bytes bytes = some_bytes(2'000'000);
  for (const Compression how : kAll) {
    SCOPED_TRACE(static_cast<int>(how));
    Bytes packed = compressed(how, bytes);
    for (std::size_t i = 0; i < 64; ++i) packed[packed.size() / 2 + i] ^= std::byte{0x55};
    const Unpacked out = unpack_all(packed);
    ASSERT_FALSE(out.size);
    EXPECT_EQ(out.size.error().code, ErrorCode::kMalformed);
    EXPECT_GT(out.size.error().where, packed.size() / 4);
    EXPECT_LE(out.size.error().where, packed.size());
  }
}

TEST(DecompressStream, ABombEndsAtTheLimit) {
  constexpr std::uint64_t kLimit = 3'000'000;
  const Bytes zeroes(16'000'000);
  for (const Compression how : kAll) {
    SCOPED_TRACE(static_cast<int>(how));
    const Bytes bomb = compressed(how, zeroes);
    ASSERT_LT(bomb.size(), 100'000U);
    const Unpacked out = unpack_all(bomb, kLimit);
    ASSERT_FALSE(out.size);
    EXPECT_EQ(out.size.error().code, ErrorCode::kLimit);
    EXPECT_EQ(out.size.error().detail, kLimit);
    EXPECT_LE(out.size.error().where, bomb.size());
    EXPECT_LE(out.bytes.size(), kLimit);
    const Unpacked exact = unpack_all(bomb, zeroes.size());
    EXPECT_TRUE(exact.size) << exact.size.error().text();
  }
}

// A header that asks for a window of 1 GiB (RFC 8878, 3.1.1.1.2), with an empty block behind it.
TEST(DecompressStream, AWindowIsBounded) {
  const Bytes frame = {std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f}, std::byte{0xfd}, std::byte{0},
                       std::byte{0xa0}, std::byte{1},    std::byte{0},    std::byte{0}};
  const Unpacked out = unpack_all(frame);
  ASSERT_FALSE(out.size);
  EXPECT_EQ(out.size.error().code, ErrorCode::kLimit) << out.size.error().text();
  Bytes small = frame;
  small[5] = std::byte{0x38};  // 128 KiB
  EXPECT_TRUE(unpack_all(small).size);
}

TEST(DecompressStream, WhatIsNotCompressedIsNot) {
  for (const char* text : {"", "\177ELF and more", "\x1f\x8b", "PK\3\4zip"}) {
    const Bytes bytes(reinterpret_cast<const std::byte*>(text),
                      reinterpret_cast<const std::byte*>(text) + strlen(text));
    EXPECT_EQ(compression_of(view(bytes)), Compression::kNone);
    EXPECT_FALSE(unpack_all(bytes).size);
  }
}

TEST(DecompressStream, WhoTakesMayEndIt) {
  const Bytes packed = compressed(Compression::kGzip, some_bytes(2'000'000));
  int pieces = 0;
  const auto size = unpack(view(packed), kPlenty, [&](ByteView) -> Expected<void> {
    ++pieces;
    return fail(ErrorCode::kSystem, "no room", 1, 28);
  });
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().detail, 28U);
  EXPECT_EQ(pieces, 1);
}

}  // namespace
}  // namespace windlass::image
