#include "formats/dwarf/cfi.h"
#include "formats/dwarf/eh_frame_hdr.h"

#include <gtest/gtest.h>

#include "collect.h"

namespace windlass {
namespace {

using dwarf::CfiReader;
using dwarf::Fde;
using test::Bytes;
using test::CfiBuilder;
using test::CieSpec;
using test::list;

// The first entry of a section, which must be a CIE.
dwarf::Cie first_cie(const dwarf::CfiSection& section) {
  const auto report = [](const Error& error) { ADD_FAILURE() << error.text(); };
  CfiReader reader(section, report);
  CfiReader::Entry entry;
  EXPECT_TRUE(reader.next(entry));
  EXPECT_NE(entry.cie, nullptr);
  return entry.cie != nullptr ? *entry.cie : dwarf::Cie{};
}

TEST(Cie, EveryVersionInBothSections) {
  for (const bool is_debug_frame : {false, true}) {
    for (const int version : {1, 3, 4}) {
      for (const bool is_64bit : {false, true}) {
        CfiBuilder builder(is_debug_frame);
        CieSpec spec;
        spec.version = version;
        spec.is_64bit = is_64bit;
        spec.augmentation = is_debug_frame ? "" : "zR";
        const auto cie = builder.cie(spec);
        const Bytes none;
        builder.fde(cie, Bytes().u64(0x1000).u64(0x20), is_debug_frame ? nullptr : &none, {0x41, 0x0e, 16}, is_64bit);
        const auto parsed = first_cie(builder.section());
        EXPECT_EQ(parsed.version, version);
        EXPECT_EQ(parsed.is_64bit, is_64bit);
        EXPECT_EQ(parsed.return_address_register, 16u);
        EXPECT_EQ(parsed.data_alignment, -8);
        const auto listing = list(builder.section());
        EXPECT_TRUE(listing.errors.empty()) << listing.errors[0].text();
        ASSERT_EQ(listing.fdes.size(), 1u);
        EXPECT_EQ(listing.fdes[0].begin, 0x1000u);
        EXPECT_EQ(listing.fdes[0].end, 0x1020u);
        ASSERT_EQ(listing.rows.size(), 2u);
        EXPECT_EQ(listing.rows[1].cfa.offset(), 16);
      }
    }
  }
}

TEST(Cie, ReturnRegisterIsAByteInVersion1AndLebLater) {
  CieSpec spec;
  spec.return_register = 200;
  for (const int version : {1, 3}) {
    CfiBuilder builder;
    spec.version = version;
    builder.cie(spec);
    EXPECT_EQ(first_cie(builder.section()).return_address_register, 200u);
  }
}

TEST(Cie, AllAugmentations) {
  CfiBuilder builder;
  CieSpec spec;
  spec.augmentation = "zPLRSBG";
  // Personality: indirect, pc-relative, 4 bytes; LSDA encoding; FDE encoding.
  spec.augmentation_data = Bytes().u8(0x9b).u32(0x100).u8(0x1b).u8(0x1b);
  builder.cie(spec);
  const auto cie = first_cie(builder.section(0x4000));
  EXPECT_TRUE(cie.has_augmentation_data);
  EXPECT_TRUE(cie.signal_frame);
  EXPECT_TRUE(cie.aarch64_b_key);
  EXPECT_TRUE(cie.aarch64_mte);
  EXPECT_EQ(cie.lsda_encoding, 0x1b);
  EXPECT_EQ(cie.fde_encoding, 0x1b);
  ASSERT_TRUE(cie.personality);
  EXPECT_TRUE(cie.personality->indirect);
  // length 4, id 4, version 1, augmentation 8, code, data and return column 3, data length 1, encoding 1
  EXPECT_EQ(cie.personality->value, 0x4000u + 22 + 0x100);
  EXPECT_EQ(cie.instructions.size(), 5u);
}

TEST(Cie, UnknownAugmentationWithALengthIsSkipped) {
  CfiBuilder builder;
  CieSpec spec;
  spec.augmentation = "zRx";
  spec.augmentation_data = Bytes{0x00, 0xde, 0xad};
  const auto cie = builder.cie(spec);
  builder.fde(cie, 0x1000, 0x10, {});
  const auto listing = list(builder.section());
  EXPECT_TRUE(listing.errors.empty());
  EXPECT_EQ(listing.rows.size(), 1u);
}

// How long the data of an unknown letter are nobody knows, so those behind it cannot be read.
TEST(Cie, NothingIsReadBehindAnUnknownAugmentation) {
  CfiBuilder builder;
  CieSpec spec;
  spec.augmentation = "zxR";
  spec.augmentation_data = Bytes{dwarf::DW_EH_PE_pcrel | dwarf::DW_EH_PE_sdata4};
  builder.cie(spec);
  EXPECT_EQ(first_cie(builder.section()).fde_encoding, dwarf::DW_EH_PE_absptr);
}

TEST(Cie, OldEhAugmentationHasAPointer) {
  CfiBuilder builder;
  CieSpec spec;
  spec.augmentation = "eh";
  const auto cie = builder.cie(spec);
  builder.fde(cie, Bytes().u64(0x1000).u64(0x10), nullptr, {});
  const auto listing = list(builder.section());
  EXPECT_TRUE(listing.errors.empty());
  ASSERT_EQ(listing.rows.size(), 1u);
  EXPECT_EQ(listing.rows[0].cfa.reg(), 7);
}

struct EncodingCase {
  int encoding;
  Bytes head;           // begin and range as stored
  std::uint64_t begin;  // what they mean
};

TEST(Fde, EveryPointerEncoding) {
  // The section is at 0x10000, so the FDE's pointer field is at 0x10000 + its offset; text is at 0x20000, data at
  // 0x30000.
  constexpr std::uint64_t kAddress = 0x10000;
  CfiBuilder probe;
  const auto probe_cie = probe.cie();
  const std::uint64_t at = kAddress + probe.fde(probe_cie, 0, 0, {}) + 8;  // after length and CIE pointer
  const auto minus = [](std::uint64_t value) { return std::uint64_t{0} - value; };
  const EncodingCase cases[] = {
      {0x00, Bytes().u64(0x123456789a).u64(16), 0x123456789a},
      {0x01, Bytes().uleb(0x12345).uleb(16), 0x12345},
      {0x02, Bytes().u16(0xfff0).u16(16), 0xfff0},
      {0x03, Bytes().u32(0xfffffff0).u32(16), 0xfffffff0},
      {0x04, Bytes().u64(0x123456789a).u64(16), 0x123456789a},
      {0x08, Bytes().u64(0x123456789a).u64(16), 0x123456789a},
      {0x09, Bytes().sleb(0x12345).sleb(16), 0x12345},
      {0x0a, Bytes().u16(0x7ff0).u16(16), 0x7ff0},
      {0x0b, Bytes().u32(0x7ffffff0).u32(16), 0x7ffffff0},
      {0x0c, Bytes().u64(0x123456789a).u64(16), 0x123456789a},
      {0x10, Bytes().u64(0x100).u64(16), at + 0x100},
      {0x1a, Bytes().u16(minus(0x100)).u16(16), at - 0x100},
      {0x1b, Bytes().u32(minus(0x100)).u32(16), at - 0x100},
      {0x1c, Bytes().u64(minus(0x100)).u64(16), at - 0x100},
      {0x19, Bytes().sleb(-0x100).sleb(16), at - 0x100},
      {0x2b, Bytes().u32(0x40).u32(16), 0x20040},
      {0x3b, Bytes().u32(0x40).u32(16), 0x30040},
      {0x4b, Bytes().u32(0x40).u32(16), 0x40},  // relative to the function: there is none yet
  };
  for (const EncodingCase& c : cases) {
    CfiBuilder builder;
    CieSpec spec;
    spec.augmentation_data = {c.encoding};
    const auto cie = builder.cie(spec);
    const Bytes none;
    builder.fde(cie, c.head, &none, {});
    auto section = builder.section(kAddress);
    section.text_address = 0x20000;
    section.data_address = 0x30000;
    const auto listing = list(section);
    EXPECT_TRUE(listing.errors.empty()) << std::hex << c.encoding << listing.errors[0].text();
    ASSERT_EQ(listing.fdes.size(), 1u) << std::hex << c.encoding;
    EXPECT_EQ(listing.fdes[0].begin, c.begin) << std::hex << c.encoding;
    EXPECT_EQ(listing.fdes[0].end, c.begin + 16) << std::hex << c.encoding;
  }
}

TEST(EncodedPointer, AlignedSkipsToTheNextBoundary) {
  const Bytes bytes = Bytes{1, 2, 3}.u8(0).u8(0).u8(0).u8(0).u8(0).u64(0x1234);
  dwarf::CfiSection section;
  section.bytes = bytes.view();
  section.address = 0x1000;
  std::uint64_t position = 3;
  const auto pointer = dwarf::read_encoded_pointer(section, position, dwarf::DW_EH_PE_aligned, 8, 0);
  ASSERT_TRUE(pointer);
  EXPECT_EQ(pointer->value, 0x1234u);
  EXPECT_EQ(position, 16u);
}

TEST(EncodedPointer, FourByteAddresses) {
  const Bytes bytes = Bytes().u32(0xfffffffe);
  dwarf::CfiSection section;
  section.bytes = bytes.view();
  std::uint64_t position = 0;
  EXPECT_EQ(dwarf::read_encoded_pointer(section, position, dwarf::DW_EH_PE_absptr, 4, 0)->value, 0xfffffffeu);
  position = 0;
  EXPECT_EQ(dwarf::read_encoded_pointer(section, position, dwarf::DW_EH_PE_signed, 4, 0)->value, ~std::uint64_t{1});
}

TEST(EncodedPointer, UnknownFormatsAreErrors) {
  const Bytes bytes = Bytes().u64(1).u64(1);
  dwarf::CfiSection section;
  section.bytes = bytes.view();
  for (const int encoding : {0x05, 0x06, 0x07, 0x0d, 0x0e, 0x0f, 0x60, 0x70}) {
    std::uint64_t position = 0;
    EXPECT_FALSE(dwarf::read_encoded_pointer(section, position, static_cast<std::uint8_t>(encoding), 8, 0)) << encoding;
    EXPECT_EQ(position, 0u);
  }
}

TEST(Fde, LsdaIsDecodedAndZeroMeansNone) {
  CfiBuilder builder;
  CieSpec spec;
  spec.augmentation = "zLR";
  spec.augmentation_data = Bytes{0x1b, 0x00};
  const auto cie = builder.cie(spec);
  const Bytes some = Bytes().u32(0x20);
  const Bytes zero = Bytes().u32(0);
  const auto first = builder.fde(cie, Bytes().u64(0x1000).u64(0x10), &some, {});
  builder.fde(cie, Bytes().u64(0x2000).u64(0x10), &zero, {});
  const auto listing = list(builder.section(0x8000));
  ASSERT_EQ(listing.fdes.size(), 2u);
  ASSERT_TRUE(listing.fdes[0].lsda);
  EXPECT_EQ(listing.fdes[0].lsda->value, 0x8000 + first + 8 + 16 + 1 + 0x20);
  EXPECT_FALSE(listing.fdes[1].lsda);
}

TEST(Fde, DebugFrameSegmentSelectorIsSkipped) {
  CfiBuilder builder(true);
  // A version 4 CIE with a 4-byte selector, by hand.
  builder.raw().u32(17).u32(0xffffffff).u8(4).text("").u8(8).u8(4).uleb(1).sleb(-8).uleb(16);
  builder.raw().add({0x0c, 7, 8, 0x90, 1, 0});
  const Bytes selector_first = Bytes().u32(99).u64(0x1000).u64(0x10);
  builder.fde(0, selector_first, nullptr, {});
  const auto listing = list(builder.section());
  EXPECT_TRUE(listing.errors.empty()) << listing.errors[0].text();
  ASSERT_EQ(listing.fdes.size(), 1u);
  EXPECT_EQ(listing.fdes[0].begin, 0x1000u);
}

TEST(CfiReader, TerminatorEndsOnlyASectionOfUnknownSize) {
  CfiBuilder builder;
  const auto cie = builder.cie();
  builder.fde(cie, 0x1000, 0x10, {});
  builder.raw().u32(0);
  builder.fde(cie, 0x2000, 0x10, {});
  auto section = builder.section();
  EXPECT_EQ(list(section).fdes.size(), 2u);
  section.stop_at_terminator = true;
  EXPECT_EQ(list(section).fdes.size(), 1u);
}

TEST(CfiReader, RandomAccess) {
  CfiBuilder builder;
  const auto cie = builder.cie();
  builder.fde(cie, 0x1000, 0x10, {});
  const auto second = builder.fde(cie, 0x2000, 0x10, {});
  const auto report = [](const Error& error) { ADD_FAILURE() << error.text(); };
  CfiReader reader(builder.section(), report);
  EXPECT_EQ(reader.fde_at(second)->begin, 0x2000u);
  EXPECT_FALSE(reader.fde_at(cie));
  EXPECT_FALSE(reader.fde_at(second + 4));
  EXPECT_FALSE(reader.fde_at(~0ull));
}

// Four bytes each, as those of the usual FDE: only the CIE says that they mean something else. It is the second that is
// read the fast way, as the CIE of the entry before is its own.
TEST(CfiReader, ASecondFdeIsReadAsTheCieEncodesIt) {
  for (const int encoding : {0x03, 0x0b, 0x13, 0x1b, 0x2b, 0x3b}) {
    CfiBuilder builder;
    CieSpec spec;
    spec.augmentation_data = {encoding};
    const auto cie = builder.cie(spec);
    const Bytes none;
    const Bytes head = Bytes().u32(0x100).u32(0x10);
    builder.fde(cie, head, &none, {});
    const auto second = builder.fde(cie, head, &none, {});
    auto section = builder.section(0x10000);
    section.text_address = 0x20000;
    section.data_address = 0x30000;
    const std::uint64_t bases[] = {0, 0x10000 + second + 8, section.text_address, section.data_address};
    const std::uint64_t begin = bases[encoding >> 4] + 0x100;
    const auto listing = list(section);
    EXPECT_TRUE(listing.errors.empty()) << std::hex << encoding;
    ASSERT_EQ(listing.fdes.size(), 2u) << std::hex << encoding;
    EXPECT_EQ(listing.fdes[1].begin, begin) << std::hex << encoding;
    EXPECT_EQ(listing.fdes[1].end, begin + 0x10) << std::hex << encoding;
  }
}

// Both CIEs have the usual encoding: only the FDE says which of them is its own.
TEST(CfiReader, AnFdeBelongsToTheCieThatItNames) {
  CfiBuilder builder;
  CieSpec spec;
  spec.augmentation_data = {0x1b};
  const auto first = builder.cie(spec);
  spec.instructions = {0x0c, 7, 24, 0x90, 1};
  const auto second = builder.cie(spec);
  const Bytes none;
  for (const auto cie : {first, second, first}) builder.fde(cie, Bytes().u32(0x100).u32(0x10), &none, {});
  const auto listing = list(builder.section(0x10000));
  ASSERT_EQ(listing.rows.size(), 3u);
  EXPECT_EQ(listing.rows[0].cfa.offset(), 8);
  EXPECT_EQ(listing.rows[1].cfa.offset(), 24);
  EXPECT_EQ(listing.rows[2].cfa.offset(), 8);
}

// ---- .eh_frame_hdr
// ----------------------------------------------------------------------------------------------------

TEST(EhFrameHdr, BinarySearch) {
  Bytes bytes = Bytes{1, 0x1b, 0x03, 0x3b}.u32(0x100).u32(3);
  for (const std::uint32_t function : {0x1000u, 0x2000u, 0x3000u}) bytes.u32(function).u32(function / 0x100);
  const auto header = dwarf::EhFrameHdr::parse(bytes.view(), 0x10000);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->eh_frame_address, 0x10004u + 0x100);
  EXPECT_EQ(header->fde_count, 3u);
  EXPECT_FALSE(header->fde_address(0x10fff));
  EXPECT_EQ(header->fde_address(0x11000).value(), 0x10010u);
  EXPECT_EQ(header->fde_address(0x12fff).value(), 0x10020u);
  EXPECT_EQ(header->fde_address(~0ull).value(), 0x10030u);
}

TEST(EhFrameHdr, HugeCountIsClamped) {
  const Bytes bytes = Bytes{1, 0x1b, 0x03, 0x3b}.u32(0x100).u32(0xffffffff).u32(0x1000).u32(0x10);
  const auto header = dwarf::EhFrameHdr::parse(bytes.view(), 0);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->fde_count, 1u);
}

TEST(EhFrameHdr, WhatStandsBehindTheCountIsNoEntry) {
  const Bytes bytes = Bytes{1, 0x1b, 0x03, 0x3b}.u32(0x100).u32(1).u32(0x1000).u32(0x10).u32(0x2000).u32(0x20);
  const auto header = dwarf::EhFrameHdr::parse(bytes.view(), 0);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->fde_count, 1u);
}

TEST(EhFrameHdr, BadOnes) {
  EXPECT_FALSE(dwarf::EhFrameHdr::parse(Bytes{1, 0x1b, 0x03}.view(), 0));
  EXPECT_FALSE(dwarf::EhFrameHdr::parse(Bytes{2, 0x1b, 0x03, 0x3b}.u32(1).u32(0).view(), 0));
  EXPECT_FALSE(dwarf::EhFrameHdr::parse(Bytes{1, 0x0f, 0x03, 0x3b}.u32(1).u32(0).view(), 0));
  EXPECT_FALSE(dwarf::EhFrameHdr::parse(Bytes{1, 0xff, 0x03, 0x3b}.u32(1).u32(0).view(), 0));
  EXPECT_FALSE(dwarf::EhFrameHdr::parse(Bytes{1, 0x9b, 0x03, 0x3b}.u32(1).u32(0).view(), 0));
}

// A function within another, each with a CIE of its own; between the outer's end and the next function is a gap.
TEST(EhFrameHdr, FindLooksThroughNestedRangesAndKeepsEachCie) {
  constexpr std::uint64_t kHeader = 0x10000, kFrame = 0x20000;
  CfiBuilder builder;
  CieSpec outer_spec, inner_spec;
  outer_spec.data_alignment = -8;
  inner_spec.data_alignment = -4;
  const auto outer_cie = builder.cie(outer_spec);
  const auto outer = builder.fde(outer_cie, 0x11000, 0x100, {});
  const auto inner_cie = builder.cie(inner_spec);
  const auto inner = builder.fde(inner_cie, 0x11040, 0x10, {});
  const auto last = builder.fde(outer_cie, 0x12000, 0x10, {});
  Bytes bytes = Bytes{1, 0x1b, 0x03, 0x3b}.u32(kFrame - kHeader - 4).u32(3);
  bytes.u32(0x1000).u32(kFrame + outer - kHeader);
  bytes.u32(0x1040).u32(kFrame + inner - kHeader);
  bytes.u32(0x2000).u32(kFrame + last - kHeader);
  const auto header = dwarf::EhFrameHdr::parse(bytes.view(), kHeader);
  ASSERT_TRUE(header);
  const auto section = builder.section(kFrame);
  const auto expect = [&](std::uint64_t pc, std::uint64_t fde, std::uint64_t cie, std::int64_t alignment) {
    dwarf::LocatedFde found;
    ASSERT_TRUE(header->find(section, pc, found)) << std::hex << pc;
    EXPECT_EQ(found.fde.offset, fde) << std::hex << pc;
    EXPECT_EQ(found.cie.offset, cie) << std::hex << pc;
    EXPECT_EQ(found.cie.data_alignment, alignment) << std::hex << pc;
  };
  expect(0x11000, outer, outer_cie, -8);
  expect(0x1104f, inner, inner_cie, -4);
  expect(0x11050, outer, outer_cie, -8);
  expect(0x110ff, outer, outer_cie, -8);
  expect(0x12000, last, outer_cie, -8);
  for (const std::uint64_t pc : {0x10fffu, 0x11100u, 0x11fffu, 0x12010u}) {
    dwarf::LocatedFde found;
    const auto missing = header->find(section, pc, found);
    ASSERT_FALSE(missing) << std::hex << pc;
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  }
}

// sub rsp, 24; mov [rsp], rbx; body; mov rbx, [rsp]; add rsp, 24; ret. Mono's compiler ahead of time lets the
// epilogue's rows begin behind the prologue's, at 0x1008.
TEST(Fde, AnEpilogueInTheMiddleOfAFunctionIsLeftOut) {
  CfiBuilder builder(true);
  CieSpec spec;
  spec.augmentation = "";
  const auto cie = builder.cie(spec);
  const Bytes program = {0x44, 0x0e, 32,     // advance 4: def_cfa_offset 32
                         0x44, 0x83, 4,      // advance 4: offset rbx at cfa-32
                         0x0a,               // remember_state
                         0x44, 0x08, 3,      // advance 4: same_value rbx
                         0x44, 0x0c, 7,  8,  // advance 4: def_cfa rsp+8
                         0x41, 0x0b};        // advance 1: restore_state
  builder.fde(cie, Bytes().u64(0x1000).u64(0x40), nullptr, program);
  Bytes code;
  for (int i = 0; i < 0x40; ++i) code.u8(0x90);
  const auto rows_at = [&](std::uint8_t at_the_end) {
    code.data()[0x10] = at_the_end;
    auto section = builder.section();
    section.text_address = 0x1000;
    section.text = code.view();
    return list(section).rows;
  };
  const auto rows = rows_at(0x48);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2].begin, 0x1008u);
  EXPECT_EQ(rows[2].end, 0x1040u);
  EXPECT_EQ(rows[2].cfa.offset(), 32);
  ASSERT_NE(rows[2].registers.find(3), nullptr);
  EXPECT_EQ(*rows[2].registers.find(3), RegisterRule::at_cfa(-32));
  EXPECT_EQ(rows_at(0xc3).size(), 6u) << "there is the ret";
  EXPECT_EQ(list(builder.section()).rows.size(), 6u) << "without code nothing is known";
}

}  // namespace
}  // namespace windlass
