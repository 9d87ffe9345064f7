// Malformed sections of call frame information: every fault is reported with its offset, and the FDE after it is still
// read.
#include "formats/dwarf/cfi.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "collect.h"

namespace windlass {
namespace {

using test::Bytes;
using test::CfiBuilder;
using test::CieSpec;
using test::list;

class Hostile : public ::testing::Test {
 protected:
  // `spoil` adds something bad between a good CIE and a good FDE.
  template <typename Spoil>
  void expect_error(ErrorCode code, std::uint64_t where, Spoil&& spoil) {
    CfiBuilder builder;
    const auto cie = builder.cie();
    bad_ = builder.raw().size();
    spoil(builder, cie);
    builder.fde(cie, 0x9000, 0x10, {});
    const auto listing = list(builder.section());
    ASSERT_EQ(listing.errors.size(), 1u);
    EXPECT_EQ(listing.errors[0].code, code) << listing.errors[0].text();
    EXPECT_EQ(listing.errors[0].where, bad_ + where) << listing.errors[0].text();
    ASSERT_FALSE(listing.fdes.empty());
    EXPECT_EQ(listing.fdes.back().begin, 0x9000u);
  }
  std::uint64_t bad_ = 0;
};

TEST_F(Hostile, LengthOfThree) {
  expect_error(ErrorCode::kMalformed, 0, [](CfiBuilder& b, auto) { b.raw().u32(3).u8(0).u8(0).u8(0); });
}

TEST_F(Hostile, ExtendedLengthOfZero) {
  expect_error(ErrorCode::kMalformed, 0, [](CfiBuilder& b, auto) { b.raw().u32(0xffffffff).u64(0); });
}

TEST_F(Hostile, FdeOfItself) {
  expect_error(ErrorCode::kMalformed, 0, [](CfiBuilder& b, auto) { b.raw().u32(20).u32(4).u64(0x1000).u64(0x10); });
}

TEST_F(Hostile, FdePointsBeforeTheSection) {
  expect_error(ErrorCode::kOutOfRange, 0,
               [](CfiBuilder& b, auto) { b.raw().u32(20).u32(0x7fffffff).u64(0x1000).u64(0x10); });
}

TEST_F(Hostile, WrappingRange) {
  expect_error(ErrorCode::kMalformed, 0, [](CfiBuilder& b, auto cie) { b.fde(cie, ~0ull - 8, 0x10, {}); });
}

TEST_F(Hostile, UnknownVersion) {
  expect_error(ErrorCode::kUnsupported, 8, [](CfiBuilder& b, auto) {
    CieSpec spec;
    spec.version = 2;
    b.cie(spec);
  });
}

TEST_F(Hostile, UnknownAugmentationWithoutALength) {
  expect_error(ErrorCode::kUnsupported, 8, [](CfiBuilder& b, auto) {
    CieSpec spec;
    spec.augmentation = "armcc+";
    b.cie(spec);
  });
}

TEST_F(Hostile, EndlessAugmentation) {
  CieSpec spec;
  spec.augmentation = "z" + std::string(100, 'R');
  expect_error(ErrorCode::kTruncated, 9, [&](CfiBuilder& b, auto) { b.cie(spec); });
}

TEST_F(Hostile, AugmentationDataPastTheEntry) {
  expect_error(ErrorCode::kOutOfRange, 16, [](CfiBuilder& b, auto) {
    const auto at = b.cie();
    b.raw().data()[at + 4 + 4 + 1 + 3 + 3] = 0x7f;  // length, id, version, "zR", factors and column
  });
}

TEST_F(Hostile, FdeShorterThanItsPointers) {
  expect_error(ErrorCode::kTruncated, 16, [](CfiBuilder& b, auto cie) {
    const std::uint64_t id_at = b.raw().size() + 4;
    b.raw().u32(14).u32(id_at - cie).u64(0x1000).u16(1);
  });
}

TEST_F(Hostile, CieWithMegabytesOfInstructions) {
  CieSpec spec;
  for (int i = 0; i < 5000; ++i) spec.instructions.u8(0);
  expect_error(ErrorCode::kLimit, 0, [&](CfiBuilder& b, auto) { b.cie(spec); });
}

TEST(HostileCfi, LengthsThatLeaveNoWayOnEndTheWalk) {
  for (const Bytes& bad : {Bytes().u32(0x7fffffff), Bytes().u32(0xfffffff0).u64(1), Bytes().u32(0xffffffff).u32(1),
                           Bytes().u32(0xffffffff).u64(~0ull), Bytes().u32(0xffffffff).u64(0x7fffffffffffffff)}) {
    CfiBuilder builder;
    const auto cie = builder.cie();
    builder.fde(cie, 0x1000, 0x10, {});
    const std::uint64_t where = builder.raw().size();
    builder.raw().add(bad);
    const auto listing = list(builder.section());
    EXPECT_EQ(listing.fdes.size(), 1u);
    ASSERT_EQ(listing.errors.size(), 1u);
    EXPECT_EQ(listing.errors[0].where, where);
  }
}

// Behind it stands what would be a sound FDE if it were the mark of a 64-bit length.
TEST(HostileCfi, ReservedLengthsAreNoLengths) {
  for (const std::uint32_t length : {0xfffffff0u, 0xfffffffeu}) {
    CfiBuilder builder;
    const auto cie = builder.cie();
    const std::uint64_t where = builder.raw().size();
    const Bytes none;
    builder.fde(cie, Bytes().u64(0x1000).u64(0x10), &none, {}, true);
    EXPECT_EQ(list(builder.section()).fdes.size(), 1u);
    for (int i = 0; i < 4; ++i)
      builder.raw().data()[where + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(length >> (8 * i));
    const auto listing = list(builder.section());
    EXPECT_TRUE(listing.fdes.empty());
    ASSERT_EQ(listing.errors.size(), 1u);
    EXPECT_EQ(listing.errors[0].code, ErrorCode::kMalformed);
    EXPECT_EQ(listing.errors[0].where, where);
  }
}

TEST(HostileCfi, TrailingBytes) {
  CfiBuilder builder;
  builder.cie();
  builder.raw().u8(0).u8(0);  // padding
  EXPECT_TRUE(list(builder.section()).errors.empty());
  builder.raw().data().back() = 1;
  EXPECT_EQ(list(builder.section()).errors.size(), 1u);
}

TEST(HostileCfi, FdesOfAMalformedCieAreEachReported) {
  CfiBuilder builder;
  CieSpec spec;
  spec.version = 77;
  const auto bad = builder.cie(spec);
  builder.fde(bad, 0x1000, 0x10, {});
  builder.fde(bad, 0x2000, 0x10, {});
  const auto good = builder.cie();
  builder.fde(good, 0x3000, 0x10, {});
  const auto listing = list(builder.section());
  EXPECT_EQ(listing.errors.size(), 3u);
  EXPECT_EQ(listing.fdes.size(), 1u);
}

TEST(HostileCfi, EveryTruncationOfAGoodSectionIsSurvived) {
  CfiBuilder builder;
  CieSpec spec;
  spec.augmentation = "zPLR";
  spec.augmentation_data = Bytes().u8(0x9b).u32(0x100).u8(0x1b).u8(0x1b);
  const auto cie = builder.cie(spec);
  const Bytes lsda = Bytes().u32(0x20);
  builder.fde(cie, Bytes().u32(0x100).u32(0x10), &lsda, {0x41, 0x0e, 16, 0x86, 2, 0x0f, 3, 0x77, 8, 6});
  const auto whole = list(builder.section());
  EXPECT_EQ(whole.rows.size(), 2u);
  for (std::size_t size = 0; size < builder.raw().size(); ++size) {
    auto section = builder.section();
    std::vector<std::uint8_t> copy(builder.raw().data().begin(),
                                   builder.raw().data().begin() + static_cast<long>(size));
    section.bytes = ByteView(std::span<const std::uint8_t>(copy));
    (void)list(section);
  }
}

// An entry of any length says where it ends. It is an FDE if all before its instructions is in it, and nothing of the
// entry behind it is taken for a part of it.
TEST(HostileCfi, AnFdeThatIsCutShortTakesNothingOfTheNext) {
  struct Form {
    int encoding;
    unsigned pointer_bytes;
  };
  for (const Form form : {Form{0x1b, 4}, Form{0x1c, 8}, Form{0x03, 4}, Form{0x04, 8}, Form{0x0b, 4}, Form{0x00, 8}})
    for (const unsigned lsda_bytes : {0U, 4U}) {
      CieSpec spec;
      spec.augmentation = lsda_bytes != 0 ? "zLR" : "zR";
      spec.augmentation_data = Bytes();
      if (lsda_bytes != 0) spec.augmentation_data.u8(0x1b);
      spec.augmentation_data.u8(static_cast<std::uint64_t>(form.encoding));
      const unsigned least = 2 * form.pointer_bytes + 1 + lsda_bytes;
      Bytes body;
      form.pointer_bytes == 4 ? body.u32(0x100).u32(0x10) : body.u64(0x100).u64(0x10);
      body.u8(lsda_bytes);
      if (lsda_bytes != 0) body.u32(0x20);
      body.add({0x41, 0x0e, 16});
      for (std::size_t size = 0; size <= body.size(); ++size) {
        CfiBuilder builder;
        const auto cie = builder.cie(spec);
        Bytes cut;
        cut.data().assign(body.data().begin(), body.data().begin() + static_cast<long>(size));
        builder.fde(cie, cut, nullptr, {});
        const std::size_t end = builder.raw().size();
        builder.fde(cie, body, nullptr, {});
        const auto listing = list(builder.section());
        ASSERT_EQ(listing.fdes.size(), size >= least ? 2U : 1U) << form.encoding << ": " << size << " bytes";
        EXPECT_EQ(listing.fdes.back().end - listing.fdes.back().begin, 0x10U);
        EXPECT_EQ(listing.fdes.back().instructions.size(), 3U);
        if (size < least) {
          EXPECT_FALSE(listing.errors.empty()) << size;
          continue;
        }
        EXPECT_EQ(listing.fdes[0].instructions.size(), size - least);
        EXPECT_EQ(listing.fdes[0].instructions.origin() + listing.fdes[0].instructions.size(), end);
        EXPECT_EQ(listing.fdes[0].lsda.has_value(), lsda_bytes != 0);
      }
    }
}

TEST(HostileCfi, OfATruncatedSectionTheWholeEntriesAreRead) {
  CfiBuilder builder;
  std::vector<std::size_t> ends;
  const auto cie = builder.cie();
  for (unsigned i = 0; i < 3; ++i) {
    builder.fde(cie, 0x1000 + 0x100 * i, 0x10, {0x41, 0x0e, 16});
    ends.push_back(builder.raw().size());
  }
  for (std::size_t size = 0; size <= builder.raw().size(); ++size) {
    auto section = builder.section();
    const std::vector<std::uint8_t> copy(builder.raw().data().begin(),
                                         builder.raw().data().begin() + static_cast<long>(size));
    section.bytes = ByteView(std::span<const std::uint8_t>(copy));
    const auto listing = list(section);
    const auto whole =
        static_cast<std::size_t>(std::ranges::count_if(ends, [&](std::size_t end) { return end <= size; }));
    EXPECT_EQ(listing.fdes.size(), whole) << size;
    const bool between = size == 0 || size == ends[0] || size == ends[1] || size == ends[2];
    EXPECT_EQ(listing.errors.empty(), between || size == ends[0] - (ends[1] - ends[0])) << size;
  }
}

}  // namespace
}  // namespace windlass
