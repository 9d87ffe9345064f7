#include "formats/image/pe.h"

#include <gtest/gtest.h>

#include "formats/image/function_table.h"
#include "formats/image/pe_names.h"
#include "support/pe_file.h"
#include "support/pe_image_builder.h"

namespace windlass {
namespace {

using image::PeImage;
using image::PeLayout;
using test::Bytes;
using test::PeImageBuilder;

ByteView view(const std::vector<std::uint8_t>& bytes) { return ByteView(std::span<const std::uint8_t>(bytes)); }

TEST(Pe, BothLayoutsYieldTheSameBytes) {
  PeImageBuilder builder;
  const auto code = builder.text({0x90, 0xc3});
  builder.entry(code, code + 2, PeImageBuilder::kData);
  builder.data(Bytes{1, 0, 0, 0});
  for (const bool mapped : {false, true}) {
    const auto bytes = builder.build(mapped);
    const auto image = PeImage::parse(view(bytes), mapped ? PeLayout::kMapped : PeLayout::kFile);
    ASSERT_TRUE(image) << image.error().text();
    EXPECT_TRUE(image->problems().empty());
    EXPECT_EQ(image->image_base(), PeImageBuilder::kBase);
    EXPECT_EQ(image->machine(), image::PeMachine::kAmd64);
    ASSERT_EQ(image->sections().size(), 3U);
    EXPECT_EQ(image->sections()[0].name, ".text");
    EXPECT_TRUE(image->sections()[0].executable());
    EXPECT_EQ(image->value_at_rva<std::uint16_t>(code).value(), 0xc390);
    EXPECT_EQ(image->exception_directory().size(), 12U);
    EXPECT_EQ(image->section_at(code), &image->sections()[0]);
    EXPECT_EQ(image->section_at(0x500), nullptr);
    EXPECT_FALSE(image->at_rva(0xffff'fff0, 32));
  }
}

TEST(Pe, RightsOfSections) {  // "Section Flags"
  image::PeSection section{};
  section.characteristics = 0x6000'0021;  // code, execute, read, and a reserved bit
  EXPECT_TRUE(section.executable());
  EXPECT_FALSE(section.writable());
  section.characteristics = 0xc000'0041;  // initialised data, read, write
  EXPECT_FALSE(section.executable());
  EXPECT_TRUE(section.writable());
}

TEST(Pe, WhatIsRefused) {
  PeImageBuilder builder;
  auto bytes = builder.build();
  EXPECT_TRUE(PeImage::sniff(view(bytes)));
  EXPECT_FALSE(PeImage::sniff(view(bytes).sub(0, 0x41).value()));
  EXPECT_EQ(PeImage::parse(view(bytes).sub(0, 0x60).value()).error().code, ErrorCode::kTruncated);
  bytes[0] = 'X';
  EXPECT_EQ(PeImage::parse(view(bytes)).error().code, ErrorCode::kMalformed);
  builder.magic = 0x10b;  // PE32
  EXPECT_EQ(PeImage::parse(view(builder.build())).error().code, ErrorCode::kUnsupported);
  PeImageBuilder other;
  other.machine = static_cast<image::PeMachine>(0x14c);  // i386
  EXPECT_EQ(PeImage::parse(view(other.build())).error().detail, 0x14cU);
}

TEST(Pe, DamageCostsOnlyItself) {
  PeImageBuilder builder;
  const auto code = builder.text({0xc3});
  builder.entry(code, code + 1, PeImageBuilder::kData);
  builder.table_size = 1 << 20;  // a directory that lies
  builder.directory(image::PeDirectory::kDebug, 0x7fff'0000, 28);
  const auto bytes = builder.build();
  const auto image = PeImage::parse(view(bytes));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->problems().size(), 3U);                         // both, and no whole number of entries
  EXPECT_EQ(image->exception_directory().size(), 512U / 12 * 12);  // what the section holds
  EXPECT_TRUE(image->at_rva(code, 1));
  // Cut in the middle of the section table's sections: they are there, their bytes are not.
  const auto cut = PeImage::parse(view(bytes).sub(0, PeImageBuilder::kHeaders + 8).value());
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->at_rva(PeImageBuilder::kTable, 12).error().code, ErrorCode::kTruncated);
}

// Where sections overlap, the one that begins last has the bytes, and nothing belongs to one behind its end.
TEST(Pe, SectionsThatOverlap) {
  test::PeFile file;
  file.headers_size = 0x400;
  file.image_size = 0x4000;
  file.sections = {{".first", 0x1000, std::vector<std::uint8_t>(0x1800, 0x11)},
                   {".last", 0x2000, std::vector<std::uint8_t>(0x100, 0x22)}};
  const auto bytes = file.build(test::PeFile::kPacked);
  const auto image = PeImage::parse(view(bytes));
  ASSERT_TRUE(image) << image.error().text();
  ASSERT_EQ(image->problems().size(), 1U);
  EXPECT_EQ(image->problems()[0].where, 0x2000U);
  EXPECT_EQ(image->value_at_rva<std::uint8_t>(0x1fff).value(), 0x11);
  EXPECT_EQ(image->value_at_rva<std::uint8_t>(0x2000).value(), 0x22);
  EXPECT_EQ(image->section_at(0x1fff), &image->sections()[0]);
  EXPECT_EQ(image->section_at(0x20ff), &image->sections()[1]);
  EXPECT_EQ(image->section_at(0x2100), nullptr);
}

TEST(Pe, ArmImagesAreNamed) {
  PeImageBuilder builder;
  builder.machine = image::PeMachine::kArm64;
  builder.arm64_entry(0x1000, 0x11000);
  builder.arm64_entry(0x1010, 0x11000);
  auto bytes = builder.build();
  EXPECT_EQ(PeImage::parse(view(bytes))->exception_directory().size(), 16U);
  // An ARM64EC image calls itself x64; its load configuration has hybrid metadata.
  PeImageBuilder hybrid;
  Bytes config;
  config.u32(0x140);
  while (config.size() < image::pe::kChpeMetadataAt) config.u32(0);
  config.u64(0x1'4001'2345);
  hybrid.directory(image::PeDirectory::kLoadConfig, hybrid.data(config), 0x140);
  bytes = hybrid.build();
  const auto image = PeImage::parse(view(bytes));
  EXPECT_EQ(image->machine(), image::PeMachine::kAmd64);
  EXPECT_EQ(machine_name(image->effective_machine()), "ARM64EC");
}

// Two ranges of code, and an ARM64 entry beside the x64 table: as lld lays out an ARM64EC image.
TEST(Pe, Arm64EcHasTwoTables) {
  PeImageBuilder builder;
  Bytes extra;
  extra.u32(0x1000).u32(0x11000).u32(0x77);
  const auto extra_at = builder.data(extra);
  builder.hybrid({0x1000 | 1, 0x40, 0x2000 | 2, 0x20, 0x3000 | 3, 8}, {extra_at, 12});
  builder.entry(0x2000, 0x2010, 0x4000);
  auto bytes = builder.build();
  const auto image = PeImage::parse(view(bytes));
  ASSERT_TRUE(image);
  ASSERT_EQ(image->code_ranges().size(), 2U);
  EXPECT_EQ(image->code_ranges()[0].begin, 0x1000U);
  EXPECT_EQ(image->code_ranges()[0].size, 0x40U);
  EXPECT_EQ(image->code_ranges()[0].machine, image::PeMachine::kArm64Ec);
  EXPECT_EQ(image->code_ranges()[1].machine, image::PeMachine::kAmd64);
  EXPECT_EQ(image->x64_functions().size(), 12U);
  EXPECT_EQ(image->arm64_functions().size(), 8U);  // the rest is half an entry
  EXPECT_EQ(image->functions_rva(false), extra_at);
  ASSERT_EQ(image->problems().size(), 2U);
  EXPECT_EQ(image->problems()[0].where, 0x3000U);
  EXPECT_STREQ(image->problems()[1].what, "second function table is no whole number of entries: RVA");
  EXPECT_TRUE(image->is_hybrid());
  EXPECT_EQ(image->machine_at(0x0fff), std::nullopt);
  EXPECT_EQ(image->machine_at(0x103f), image::PeMachine::kArm64Ec);
  EXPECT_EQ(image->machine_at(0x1040), std::nullopt);
  EXPECT_EQ(image->machine_at(0x2000), image::PeMachine::kAmd64);
  const auto in_memory = builder.build(true);
  EXPECT_EQ(PeImage::parse(view(in_memory), image::PeLayout::kMapped)->code_ranges().size(), 2U);
}

// A loader that moves the image changes the address, and ImageBase.
TEST(Pe, CodeRangesOfAnImageThatHasMoved) {
  constexpr std::uint64_t kElsewhere = 0x7ff6'1234'0000;
  PeImageBuilder builder;
  builder.hybrid({0x1000 | 1, 0x40}, {}, kElsewhere);
  auto bytes = builder.build(true);
  const auto lost = PeImage::parse(view(bytes), image::PeLayout::kMapped);
  EXPECT_TRUE(lost->is_hybrid());
  EXPECT_TRUE(lost->code_ranges().empty());
  ASSERT_EQ(lost->problems().size(), 1U);
  EXPECT_STREQ(lost->problems()[0].what, "ARM64EC metadata is outside the image: RVA");
  builder.image_base = kElsewhere;
  bytes = builder.build(true);
  EXPECT_EQ(PeImage::parse(view(bytes), image::PeLayout::kMapped)->code_ranges().size(), 1U);
}

TEST(Pe, CodeViewIdentity) {
  PeImageBuilder builder;
  Bytes rsds;
  rsds.u32(image::pe::kRsds).u32(0x01234567).u16(0x89ab).u16(0xcdef);
  for (int i = 0; i < 8; ++i) rsds.u8(0x10 + i);
  rsds.u32(0x1a).text("C:\\a.pdb");
  const auto at = builder.data(rsds);
  // File offset of .rdata: behind the headers and .text, which is empty.
  Bytes directory;
  directory.u32(0)
      .u32(0)
      .u16(0)
      .u16(0)
      .u32(image::pe::kDebugCodeView)
      .u32(rsds.size())
      .u32(at)
      .u32(PeImageBuilder::kHeaders);
  builder.directory(image::PeDirectory::kDebug, builder.data(directory), 28);
  for (const bool mapped : {false, true}) {
    const auto bytes = builder.build(mapped);
    const auto image = PeImage::parse(view(bytes), mapped ? PeLayout::kMapped : PeLayout::kFile);
    EXPECT_EQ(image->build_id(), "0123456789ABCDEF10111213141516171a");
    EXPECT_EQ(image->pdb_path(), "C:\\a.pdb");
  }
}

TEST(Pe, Exports) {
  PeImageBuilder builder;
  const auto code = builder.text({0xc3, 0xc3});
  const std::uint32_t at = builder.next_data();
  // header, 3 addresses, 2 names, 2 ordinals, strings
  const std::uint32_t addresses = at + 40, names = addresses + 12, ordinals = names + 8, strings = ordinals + 4;
  Bytes table;
  table.u32(0).u32(0).u16(0).u16(0).u32(strings).u32(5).u32(3).u32(2).u32(addresses).u32(names).u32(ordinals);
  table.u32(code).u32(strings + 6).u32(code + 1);       // by ordinals 5, 6 (forwarded), 7
  table.u32(strings + 6 + 9).u32(strings + 6 + 9 + 6);  // alpha, beta
  table.u16(2).u16(1);
  table.text("M.dll").text("NTDLL.#7").text("alpha").text("beta");
  builder.directory(image::PeDirectory::kExport, builder.data(table), static_cast<std::uint32_t>(table.size()));
  const auto bytes = builder.build();
  const auto image = PeImage::parse(view(bytes));
  const auto exports = image::PeExports::open(*image);
  ASSERT_TRUE(exports) << exports.error().text();
  EXPECT_EQ(exports->module_name(), "M.dll");
  EXPECT_EQ(exports->find("alpha")->rva, code + 1);
  EXPECT_EQ(exports->find("alpha")->ordinal, 7U);
  EXPECT_EQ(exports->find("beta")->forwarder, "NTDLL.#7");
  EXPECT_EQ(exports->find("beta")->rva, 0U);
  EXPECT_EQ(exports->address(0)->rva, code);
  EXPECT_EQ(exports->find("gamma").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(exports->named(2));
  EXPECT_EQ(image::PeSymbols::make(*image).at(code + 1), "alpha");
}

TEST(Pe, CoffSymbols) {
  PeImageBuilder builder;
  const auto code = builder.text({0xc3, 0xc3, 0xc3});
  const auto symbol = [&](const Bytes& name, std::uint32_t value, unsigned section, unsigned type) {
    builder.symbols.add(name).u32(value).u16(section).u16(type).u8(2).u8(0);
  };
  symbol(Bytes{'s', 'h', 'o', 'r', 't', 0, 0, 0}, 0, 1, 0x20);
  symbol(Bytes{0, 0, 0, 0, 4, 0, 0, 0}, 2, 1, 0x20);
  symbol(Bytes{'d', 'a', 't', 'a', 0, 0, 0, 0}, 1, 1, 0);
  symbol(Bytes{'n', 'o', 'w', 'h', 'e', 'r', 'e', 0}, 1, 9, 0x20);
  builder.strings.text("a_name_that_is_longer");
  const auto bytes = builder.build();
  const auto image = PeImage::parse(view(bytes));
  const auto symbols = image::PeSymbols::make(*image);
  EXPECT_EQ(symbols.size(), 2U);
  EXPECT_EQ(symbols.at(code), "short");
  EXPECT_EQ(symbols.at(code + 1), "");
  EXPECT_EQ(symbols.nearest(code + 1)->name, "short");
  EXPECT_EQ(symbols.nearest(code + 9)->name, "a_name_that_is_longer");
  EXPECT_FALSE(symbols.nearest(code - 1));
}

TEST(Pe, UnsortedFunctionTable) {
  Bytes table;
  for (const std::uint32_t begin : {0x3000U, 0x1000U, 0x2000U, 0x2000U}) table.u32(begin).u32(begin + 8).u32(0);
  const image::FunctionTable functions(table.view(), 12);
  EXPECT_FALSE(functions.stored_sorted());
  EXPECT_EQ(functions.size(), 4U);
  const auto found = [&](std::uint32_t rva) {
    return functions.stored_index(functions.last_at_or_before(rva).value());
  };
  EXPECT_FALSE(functions.last_at_or_before(0xfff));
  EXPECT_EQ(found(0x1000), 1U);
  EXPECT_EQ(found(0x1fff), 1U);
  EXPECT_EQ(found(0x2004), 3U);
  EXPECT_EQ(found(0xffff'ffff), 0U);
}

}  // namespace
}  // namespace windlass
