// Information written from a Prologue or from rows is read back, and agrees with the model at every instruction.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "formats/sframe/read.h"
#include "support/random_arm64_prologue.h"
#include "support/sframe_bytes.h"
#include "support/x64_functions.h"
#include "windlass/format/sframe.h"

namespace windlass {
namespace {

using namespace prologue;
using sframe::Section;
using sframe::Version;
using sframe::Writer;

constexpr std::uint64_t kCode = 0x7f00'0000'0000, kFrames = kCode + 0x100000;

ByteView view(const std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

using Says = std::vector<std::pair<std::uint64_t, std::string>>;

// Rows that say the same are one.
Says merged(std::span<const FrameRow> rows, Architecture architecture, std::uint64_t base) {
  Says out;
  for (const FrameRow& row : rows)
    if (std::string says = test::sframe_text(architecture, row); out.empty() || out.back().second != says)
      out.emplace_back(base + row.begin, says);
  return out;
}

std::vector<FrameRow> rows_read(const Section& section) {
  std::vector<FrameRow> rows;
  const auto never = [](const Error& error) { ADD_FAILURE() << error.text(); };
  const auto each = [&](const sframe::Function& function) {
    const auto done = section.for_each_row(function, [&](const FrameRow& row) { rows.push_back(row); });
    EXPECT_TRUE(done) << done.error().text();
    return true;
  };
  section.for_each_function(each, never);
  return rows;
}

void expect_same(const Prologue& prologue, const sframe::WriteOptions& options) {
  Writer writer(options);
  const auto done = writer.add(prologue, kCode);
  ASSERT_TRUE(done) << done.error().text();
  const auto bytes = std::move(writer).take();
  ASSERT_TRUE(bytes) << bytes.error().text();
  const auto section = Section::parse(view(*bytes), options.address);
  ASSERT_TRUE(section) << section.error().text();
  ASSERT_EQ(section->size(), 1u);
  EXPECT_EQ(section->function(0)->begin, kCode);
  EXPECT_EQ(section->function(0)->end, kCode + prologue.code_size);
  EXPECT_EQ(section->function(0)->b_key, options.b_key);
  EXPECT_EQ(merged(rows_read(*section), options.architecture, 0),
            merged(*rows_of(prologue), options.architecture, kCode));
}

// The example of windlass/format/sframe.h: prologue, body, epilogue.
TEST(SFrameWrite, TheCommonestPrologue) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 40};
  f.ops = {{1, push(6)}, {4, SetFramePointer{6}}};
  f.epilogues = {mirrored(f, 35)};
  Writer writer({.address = 0x2000});
  ASSERT_TRUE(writer.add(f, 0x1000));
  const auto bytes = std::move(writer).take();
  ASSERT_TRUE(bytes);
  EXPECT_EQ(*bytes, test::from_hex("e2de0305 0300f800 01000000 04000000 13000000 00000000 10000000"
                                   "e4efffff ffffffff 28000000 00000000"
                                   "04000000 00 000308 010510f0 040410f0 270308"));
  expect_same(f, {.address = kFrames});
  expect_same(f, {.version = Version::k2, .address = kFrames});
}

TEST(SFrameWrite, RowsOfX64AreThoseOfTheModel) {
  std::mt19937_64 random(7);
  std::size_t flexible = 0, written = 0;
  for (unsigned i = 0; i < 3000 && !HasFailure(); ++i) {
    test::X64FunctionMaker maker([&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); });
    const test::MadeFunction made = maker.make();
    if (!rows_of(made.prologue)) continue;  // of 2 GiB
    SCOPED_TRACE(i);
    expect_same(made.prologue, {.address = kFrames});
    ++written;
    Writer two({.version = Version::k2, .address = kFrames});
    if (two.add(made.prologue, kCode))
      expect_same(made.prologue, {.version = Version::k2, .address = kFrames});
    else
      ++flexible;
  }
  EXPECT_GT(flexible, 100u) << "frame pointers other than rbp";
  EXPECT_GT(written - flexible, 500u);
}

TEST(SFrameWrite, RowsOfArm64AreThoseOfTheModel) {
  std::size_t is_signed = 0;
  for (std::uint64_t i = 0; i < 3000 && !HasFailure(); ++i) {
    const Prologue f = test::RandomArm64Prologue(i).make();
    const auto rows = rows_of(f);
    ASSERT_TRUE(rows) << rows.error().text();
    is_signed += std::ranges::any_of(*rows, [](const FrameRow& row) { return row.return_signed; }) ? 1 : 0;
    SCOPED_TRACE(i);
    const sframe::WriteOptions options{.architecture = Architecture::kAArch64, .address = kFrames, .b_key = i % 2 == 0};
    expect_same(f, options);
    sframe::WriteOptions two = options;
    two.version = Version::k2;
    expect_same(f, two);
  }
  EXPECT_GT(is_signed, 100u);
}

// GNU as makes nothing of these on AArch64; the format says them.
TEST(SFrameWrite, FlexibleRowsOfArm64) {
  std::vector<FrameRow> rows(4);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].begin = i * 4, rows[i].end = i * 4 + 4;
    rows[i].cfa = CfaRule::at(31, 16);
    rows[i].return_address = RegisterRule::in_register(30);
  }
  ASSERT_TRUE(rows[0].registers.set(29, RegisterRule::at_cfa(-16)));  // without x30
  rows[1].return_address = RegisterRule::in_register(9);
  rows[1].return_signed = true;
  rows[2].cfa = CfaRule::at(19, 32);
  rows[2].return_address = RegisterRule::at_cfa(-8);
  rows[3].cfa = CfaRule::loaded(31, 8, 0);
  rows[3].return_address = RegisterRule::at_register(31, 0);
  ASSERT_TRUE(rows[3].registers.set(29, RegisterRule::register_value(10, 1000)));
  Writer writer({.architecture = Architecture::kAArch64, .address = kFrames});
  ASSERT_TRUE(writer.add(rows, kCode));
  const auto bytes = *std::move(writer).take();
  const auto section = Section::parse(view(bytes), kFrames);
  ASSERT_TRUE(section);
  EXPECT_TRUE(section->function(0)->flexible);
  const Says expected = {{kCode, "sp+16 c-16 u"},
                         {kCode + 4, "sp+16 u r9+0[s]"},
                         {kCode + 8, "r19+32 u c-8"},
                         {kCode + 12, "(sp+8) r10+1000 (sp+0)"}};
  EXPECT_EQ(merged(rows_read(*section), Architecture::kAArch64, 0), expected);
  EXPECT_EQ(merged(rows, Architecture::kAArch64, kCode), expected);
}

// In the default type a second offset would be x30's.
TEST(SFrameWrite, AFramePointerAloneOnArm64) {
  FrameRow row;
  row.end = 4;
  row.cfa = CfaRule::at(31, 16);
  row.return_address = RegisterRule::in_register(30);
  ASSERT_TRUE(row.registers.set(29, RegisterRule::at_cfa(-16)));
  Writer writer({.architecture = Architecture::kAArch64, .address = kFrames});
  ASSERT_TRUE(writer.add(std::span(&row, 1), kCode));
  const auto bytes = *std::move(writer).take();
  const auto section = Section::parse(view(bytes), kFrames);
  ASSERT_TRUE(section);
  EXPECT_TRUE(section->function(0)->flexible);
  EXPECT_EQ(merged(rows_read(*section), Architecture::kAArch64, 0), (Says{{kCode, "sp+16 c-16 u"}}));
}

// Version 3 at any distance, in both directions.
TEST(SFrameWrite, FunctionsFarAway) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 16};
  f.ops = {{1, push(3)}};
  Writer writer({.address = kFrames});
  const std::uint64_t places[] = {0x1000, kCode, kFrames + (std::uint64_t{1} << 40)};
  for (const std::uint64_t place : places) ASSERT_TRUE(writer.add(f, place));
  const auto bytes = *std::move(writer).take();
  const auto section = Section::parse(view(bytes), kFrames);
  ASSERT_TRUE(section);
  for (const std::uint64_t place : places) {
    const auto found = section->find(place + 15);
    ASSERT_TRUE(found) << std::hex << place;
    EXPECT_EQ(found->begin, place);
  }
}

// What GNU as made is written again from its rows, byte for byte.
void expect_as_binutils(std::string_view hex, std::uint64_t address, std::size_t flag = 0) {
  auto bytes = test::from_hex(hex);
  if (flag != 0) bytes[flag] = std::byte{0};
  const auto section = Section::parse(view(bytes), address);
  ASSERT_TRUE(section);
  Writer writer({.architecture = section->architecture(), .address = address});
  const auto never = [](const Error& error) { ADD_FAILURE() << error.text(); };
  const auto each = [&](const sframe::Function& function) {
    std::vector<FrameRow> rows;
    EXPECT_TRUE(section->for_each_row(function, [&](const FrameRow& row) { rows.push_back(row); }));
    const auto added = writer.add(rows, function.begin);
    EXPECT_TRUE(added) << added.error().text();
    return true;
  };
  section->for_each_function(each, never);
  EXPECT_EQ(*std::move(writer).take(), bytes);
}

TEST(SFrameWrite, TheSameBytesAsBinutils) {
  expect_as_binutils(test::kSFrameX64, test::kSFrameX64Address);
  constexpr std::size_t kInfoOfTheThird = 28 + 4 * 16 + 0x2a + 2;  // a writer has one key for all
  expect_as_binutils(test::kSFrameA64, test::kSFrameA64Address, kInfoOfTheThird);
}

// In any order of adding; each found at its addresses, and nothing between them.
TEST(SFrameWrite, ManyFunctions) {
  Prologue f{.architecture = Architecture::kX86_64, .code_size = 20};
  f.ops = {{1, push(3)}};
  for (const Version version : {Version::k2, Version::k3}) {
    Writer writer({.version = version, .address = kFrames});
    std::vector<std::uint32_t> order(500);
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::shuffle(order, std::mt19937_64(3));
    for (const std::uint32_t i : order) {
      f.code_size = 2 + i % 14;
      ASSERT_TRUE(writer.add(f, kCode + i * 16ULL));
    }
    const auto bytes = std::move(writer).take();
    ASSERT_TRUE(bytes);
    const auto section = Section::parse(view(*bytes), kFrames);
    ASSERT_TRUE(section);
    EXPECT_EQ(section->size(), 500u);
    for (std::uint64_t at = kCode; at < kCode + 500 * 16; ++at) {
      const auto found = section->find(at);
      const bool covered = (at - kCode) % 16 < 2 + (at - kCode) / 16 % 14;
      ASSERT_EQ(found.has_value(), covered) << at - kCode;
      if (!covered) continue;
      FrameRow row;
      ASSERT_TRUE(section->row_at(*found, at, row));
      ASSERT_EQ(row.cfa, CfaRule::at(7, at % 16 == 0 ? 8 : 16));
    }
  }
}

// Starts of one, two and four bytes; words of one, two and four.
TEST(SFrameWrite, SizesOfStartsAndWords) {
  for (const std::uint32_t start : {0xffU, 0x100U, 0xffffU, 0x10000U}) {
    for (const std::int32_t offset : {127, 128, 32767, 32768, INT32_MAX}) {
      FrameRow rows[2];
      rows[0].cfa = CfaRule::at(7, 8);
      rows[0].return_address = RegisterRule::at_cfa(-8);
      rows[0].end = rows[1].begin = start;
      rows[1].end = start + 1;
      rows[1].cfa = CfaRule::at(7, offset);
      rows[1].return_address = RegisterRule::at_cfa(-8);
      Writer writer({.address = kFrames});
      ASSERT_TRUE(writer.add(rows, kCode));
      const auto bytes = *std::move(writer).take();
      const std::size_t first = start <= 0xff ? 3 : start <= 0xffff ? 4 : 6;
      const std::size_t second = first - 1 + (offset <= 127 ? 1 : offset <= 32767 ? 2 : 4);
      EXPECT_EQ(bytes.size(), 28 + 16 + 5 + first + second);
      const auto section = Section::parse(view(bytes), kFrames);
      ASSERT_TRUE(section);
      EXPECT_EQ(merged(rows_read(*section), Architecture::kX86_64, 0), merged(rows, Architecture::kX86_64, kCode));
    }
  }
}

// ---- what is refused ----------------------------------------------------------------------------------------------

FrameRow usual_row() {
  FrameRow row;
  row.begin = 0x40, row.end = 0x50;
  row.cfa = CfaRule::at(7, 8);
  row.return_address = RegisterRule::at_cfa(-8);
  return row;
}

void expect_refused(const std::vector<FrameRow>& rows, ErrorCode code, std::uint64_t where, std::uint64_t detail = 0,
                    Version version = Version::k3) {
  Writer writer({.version = version, .address = kFrames});
  const auto done = writer.add(rows, kCode);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, code) << done.error().text();
  EXPECT_EQ(done.error().where, where) << done.error().text();
  EXPECT_EQ(done.error().detail, detail) << done.error().text();
  const auto bytes = std::move(writer).take();
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->size(), 28u) << "something was added";
}

TEST(SFrameWrite, WhatCannotBeSaid) {
  FrameRow row = usual_row();
  (void)row.registers.set(6, RegisterRule::undefined());
  expect_refused({row}, ErrorCode::kUnsupported, 0x40, 6);
  (void)row.registers.set(6, RegisterRule::cfa_value(-16));
  expect_refused({row}, ErrorCode::kUnsupported, 0x40, 6);
  (void)row.registers.set(6, RegisterRule::at_expression({0, 0}));
  expect_refused({row}, ErrorCode::kUnsupported, 0x40, 6);
  row = usual_row();
  row.return_address = RegisterRule::cfa_value(8);
  expect_refused({row}, ErrorCode::kUnsupported, 0x40, 16);
  row = usual_row();
  row.cfa = CfaRule::loaded(7, 8, 16);
  expect_refused({row}, ErrorCode::kUnsupported, 0x40, 7);
  row.cfa = CfaRule::expression({0, 0});
  expect_refused({row}, ErrorCode::kUnsupported, 0x40);
}

TEST(SFrameWrite, RowsThatAreNoFunction) {
  expect_refused({}, ErrorCode::kMalformed, 0);
  FrameRow first = usual_row(), second = usual_row();
  second.begin = 0x51, second.end = 0x60;
  expect_refused({first, second}, ErrorCode::kMalformed, 0x51);
  second.begin = 0x50;
  second.signal_frame = true;
  expect_refused({first, second}, ErrorCode::kUnsupported, 0x50);
  first.end = 0x40 + (std::uint64_t{1} << 32);
  expect_refused({first}, ErrorCode::kLimit, 0x40);
}

TEST(SFrameWrite, WhatVersion2CannotSay) {
  FrameRow row = usual_row();
  row.signal_frame = true;
  expect_refused({row}, ErrorCode::kUnsupported, 0x40, 0, Version::k2);
  row = usual_row();
  row.cfa = CfaRule::at(10, 0);
  expect_refused({usual_row(),
                  [&] {
                    row.begin = 0x50, row.end = 0x60;
                    return row;
                  }()},
                 ErrorCode::kUnsupported, 0x50, 0, Version::k2);
  Writer writer({.version = Version::k2, .address = kFrames});
  ASSERT_TRUE(writer.add(std::vector<FrameRow>{usual_row()}, kFrames + (std::uint64_t{1} << 32)));
  const auto bytes = std::move(writer).take();
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kOutOfRange);
}

TEST(SFrameWrite, TooManyRows) {
  std::vector<FrameRow> rows(65536, usual_row());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].begin = i, rows[i].end = i + 1;
    rows[i].cfa = CfaRule::at(7, i % 2 == 0 ? 8 : 16);
  }
  expect_refused(rows, ErrorCode::kLimit, kCode, 65536);
  rows.pop_back();
  Writer writer({.address = kFrames});
  EXPECT_TRUE(writer.add(rows, kCode));
}

TEST(SFrameWrite, FunctionsThatOverlap) {
  Writer writer({.address = kFrames});
  ASSERT_TRUE(writer.add(std::vector<FrameRow>{usual_row()}, kCode + 15));
  ASSERT_TRUE(writer.add(std::vector<FrameRow>{usual_row()}, kCode));
  const auto bytes = std::move(writer).take();
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kMalformed);
  EXPECT_EQ(bytes.error().where, kCode + 15);
}

TEST(SFrameWrite, OtherArchitectures) {
  Prologue f{.architecture = Architecture::kAArch64, .code_size = 8};
  Writer writer({.address = kFrames});
  EXPECT_EQ(writer.add(f, kCode).error().code, ErrorCode::kUnsupported);
  Writer i386({.architecture = Architecture::kI386});
  EXPECT_EQ(i386.add(std::vector<FrameRow>{usual_row()}, kCode).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace windlass
