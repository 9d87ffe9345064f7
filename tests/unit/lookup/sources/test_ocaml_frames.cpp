// OCaml's table of calls in an image: both forms of it, what is done with it by sources and tables, and damaged ones.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/registers.h"
#include "lookup/sources/ocaml_frames.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/compile.h"
#include "support/pe_file.h"

namespace windlass {
namespace {

using sources::OcamlFrames;
using test::Bytes;
using test::PeFile;

// Three calls of code at 0x1000, of which the last is that of caml_start_program.
struct Program {
  static constexpr std::uint32_t kText = 0x1000, kData = 0x2000, kSize = 0x3000;
  bool offsets = false;  // the form since OCaml 4.07
  std::uint64_t first_call = PeFile::kImageBase + kText + 0x10;
  std::uint64_t count = 3;
  std::string symbol = "caml_frametable";
  bool second_function = false;  // at 0x102c, behind a push at 0x1028; its symbol has no type, as OCaml's

  [[nodiscard]] std::vector<std::uint8_t> file() const {
    Bytes data;
    const auto align = [&](std::size_t unit) {
      while (data.size() % unit != 0) data.u8(0);
    };
    const auto call = [&](std::uint64_t address, std::uint16_t size, std::uint16_t live) {
      data.u64(address).u16(size).u16(live);
      for (std::uint16_t i = 0; i < live; ++i) data.u16(8);
      if (offsets && size != 0xffff && (size & 2) != 0) data.u8(1).u8(3);  // one length
      if (!offsets || size == 0xffff) align(8);
      if (size != 0xffff && (size & 1) != 0) {
        align(offsets ? 4 : 8);
        offsets ? data.u32(0x11) : data.u64(0x22);
      }
      align(8);
    };
    data.u64(PeFile::kImageBase + kData + 32).u64(0).u64(0).u64(0);  // the list
    data.u64(count);
    call(first_call, 32 | 1, 3);
    call(PeFile::kImageBase + kText + 0x20, 16 | (offsets ? 3 : 1), 0);
    call(PeFile::kImageBase + kText + 0x30, 0xffff, 0);
    // An entry for a function of C: push rbp.
    const auto entry = kData + static_cast<std::uint32_t>(data.size());
    data.u32(kText).u32(kText + 8).u32(entry + 12).u8(1).u8(1).u8(1).u8(0).u8(1).u8(0x50).u8(0).u8(0);
    PeFile file;
    file.set_directory(image::PeDirectory::kException, entry, 12);
    file.headers_size = 0x1000;
    file.image_size = kSize;
    std::vector<std::uint8_t> text(0x40, 0xf8);  // clc; ret
    text.back() = 0xc3;
    if (second_function) text[0x28] = 0x50;
    file.sections = {{".text", kText, text, true}, {".data", kData, data.data()}};
    file.strings = Bytes();
    for (const char letter : symbol) file.strings.u8(static_cast<std::uint8_t>(letter));
    file.strings.u8(0);
    // The name at offset 4 of the strings; at the begin of the second section; external.
    file.symbols = Bytes();
    file.symbols.u32(0).u32(4).u32(0).u16(2).u16(0).u8(2).u8(0);
    if (second_function) {
      file.symbols.u32(0).u32(4 + static_cast<std::uint32_t>(file.strings.size())).u32(0x2c).u16(1).u16(0).u8(2).u8(0);
      file.strings.u8('f').u8(0);
    }
    return file.build(PeFile::kPacked);
  }
};

struct Read {
  explicit Read(const Program& program)
      : bytes(program.file()), image(parse(bytes)), frames(OcamlFrames::read(image)) {}
  static image::PeImage parse(const std::vector<std::uint8_t>& bytes) {
    auto image = image::PeImage::parse(ByteView(std::span(bytes)));
    if (!image) throw std::runtime_error(image.error().text());
    return *image;
  }
  std::vector<std::uint8_t> bytes;
  image::PeImage image;
  OcamlFrames frames;
};

TEST(OcamlFrames, AreReadInBothForms) {
  for (const bool offsets : {false, true}) {
    const Read program({.offsets = offsets});
    EXPECT_EQ(program.frames.size(), 2U) << offsets;
    EXPECT_EQ(program.frames.size_at(0x1010), 32U);
    EXPECT_EQ(program.frames.size_at(0x1020), 16U);
    EXPECT_FALSE(program.frames.size_at(0x1030));  // C is below
    EXPECT_FALSE(program.frames.size_at(0x1011));
    for (const std::uint32_t inside : {0x1010, 0x1024, 0x1030}) EXPECT_TRUE(program.frames.has_code(inside));
    for (const std::uint32_t outside : {0x100f, 0x1031}) EXPECT_FALSE(program.frames.has_code(outside));
  }
}

TEST(OcamlFrames, AreNoneInOtherImages) {
  EXPECT_EQ(Read({.symbol = "other_frametable"}).frames.size(), 0U);
  EXPECT_EQ(Read({.first_call = PeFile::kImageBase + Program::kData}).frames.size(), 0U);  // a call in data
  EXPECT_EQ(Read({.first_call = 0x10}).frames.size(), 0U);
  EXPECT_EQ(Read({.count = 200}).frames.size(), 0U);  // more than there are
  EXPECT_EQ(Read({.count = ~std::uint64_t{0}}).frames.size(), 0U);
  EXPECT_FALSE(Read({.symbol = "other_frametable"}).frames.has_code(0));
}

TEST(OcamlFrames, GiveRowsAtCallsAndNoLeaves) {
  const Read program({});
  const auto source = sources::make_source(program.image);
  FrameRow row;
  ASSERT_TRUE(source->row_at(0x100f, row));  // the last byte of the call
  EXPECT_EQ(row.cfa, CfaRule::at(x86_64::kRsp, 32));
  EXPECT_EQ(row.return_address, RegisterRule::at_cfa(-8));
  EXPECT_TRUE(row.registers.find(x86_64::kRbx)->is(RegisterRule::kUndefined));
  EXPECT_EQ(row.begin, 0x100fU);
  EXPECT_EQ(row.end, 0x1010U);
  EXPECT_EQ(source->row_at(0x1010, row).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(source->may_be_leaf(0x1018));
  EXPECT_TRUE(source->may_be_leaf(0x1000));
  EXPECT_TRUE(source->is_windows());
}

// The compiled table has them at the calls, and what the code looks like around these.
TEST(OcamlFrames, AreInTables) {
  const Read program({});
  const auto source = sources::make_source(program.image);
  const auto compiled = table::compile(*source, [](const Error& error) { ADD_FAILURE() << error.text(); });
  ASSERT_TRUE(compiled) << compiled.error().text();
  const auto offset_at = [&](std::uint64_t address) { return compiled->find(address).cfa_offset; };
  EXPECT_EQ(offset_at(0x1004), 16);  // C's function
  for (const std::uint64_t around : {0x1008, 0x100e, 0x1010, 0x1011, 0x101e, 0x1020, 0x102f, 0x1030})
    EXPECT_EQ(offset_at(around), 8) << around;
  EXPECT_EQ(offset_at(0x100f), 32);
  EXPECT_EQ(offset_at(0x101f), 16);
}

TEST(OcamlFrames, FunctionsBeginWhereASymbolIs) {
  const Read program({.second_function = true});
  const auto compiled = table::compile(*sources::make_source(program.image), [](const Error&) {});
  ASSERT_TRUE(compiled) << compiled.error().text();
  EXPECT_EQ(compiled->find(0x102b).cfa_offset, 16);
  EXPECT_EQ(compiled->find(0x102c).cfa_offset, 8);
}

}  // namespace
}  // namespace windlass
