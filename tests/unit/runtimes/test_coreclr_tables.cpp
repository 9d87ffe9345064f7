// The tables and heaps of .NET metadata by themselves: what is written in an image, and images that lie.
#include "runtimes/coreclr/metadata_tables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "support/fake_metadata.h"

namespace windlass::runtimes::coreclr {
namespace {

using test::BlockMemory;
using test::FakeMetadata;

constexpr std::uint64_t kPe = 0x80, kRoot = 0x400 + 72;  // in a flat image of FakeMetadata's

// A module with a type, and a method whose signature is the first blob.
FakeMetadata with_blob(const std::string& blob, const FakeMetadata::Options& options = {}) {
  FakeMetadata module(options);
  (void)module.type("Type", "Space");
  (void)module.method("M", blob);
  return module;
}

// "fine", or why it cannot be opened.
std::string opened(const Memory& memory) {
  const auto tables = MetadataTables::open(memory, FakeMetadata::kBase, true);
  return tables ? "fine" : tables.error().text();
}

// The image with a value at an offset.
template <typename T>
std::string with(std::uint64_t at, T value, const FakeMetadata& module = with_blob("x")) {
  BlockMemory memory = module.memory();
  std::memcpy(memory.bytes().data() + at, &value, sizeof value);
  return opened(memory);
}

// Where a text is in the image.
std::uint64_t place_of(std::string_view text, const FakeMetadata& module = with_blob("x")) {
  BlockMemory memory = module.memory();
  const std::string_view all(reinterpret_cast<const char*>(memory.bytes().data()), memory.bytes().size());
  return all.find(text);
}

TEST(CoreClrTables, WhatIsNoImageIsRefused) {
  EXPECT_EQ(with(0, std::uint16_t{0x5a4d}), "fine");
  EXPECT_EQ(with(0, std::uint16_t{0x5a4e}), "0x7f0000000000: a .NET module's image has no PE header");
  EXPECT_EQ(with(kPe, std::uint32_t{0x4551}), "0x7f0000000000: a .NET module's image has no PE header");
  EXPECT_EQ(with(kPe + 6, std::uint16_t{96}, with_blob(std::string(4096, 'x'))), "fine")
      << "as many sections as a loader takes";
  EXPECT_EQ(with(kPe + 6, std::uint16_t{97}), "0x7f0000000000: a .NET module's image has no PE header");
  EXPECT_EQ(with(0x3c, std::uint32_t{0x7fff'0000}), "0x7f007fff0000: a .NET module's image cannot be read");
  EXPECT_EQ(with(kPe + 24 + 112 + 14 * 8, std::uint32_t{0}), "0x7f0000000000: an image without .NET metadata");
  EXPECT_EQ(with(0x400 + 8, std::uint32_t{0}), "0x7f0000000000: an image without .NET metadata");
  EXPECT_EQ(with(0x400 + 8, std::uint32_t{0x8000}), "0x7f0000000000: an image without .NET metadata")
      << "in no section";
}

TEST(CoreClrTables, WhatIsNoMetadataIsRefused) {
  EXPECT_EQ(with(kRoot, std::uint32_t{0x424a'5343}),
            "0x7f0000000448: .NET metadata with another beginning (0x424a5343)");
  EXPECT_EQ(with(kRoot + 12, std::uint32_t{256}), "0x7f0000000448: .NET metadata with another beginning (0x424a5342)");
  EXPECT_EQ(with(place_of("#Strings") + 1, 's'), "0x7f0000000448: .NET metadata without tables");
  EXPECT_EQ(with(place_of("#~") + 1, '!'), "0x7f0000000448: .NET metadata without tables");
  EXPECT_EQ(with(place_of("#Strings") - 4, std::uint32_t{0}), "0x7f0000000448: .NET metadata without tables");
  EXPECT_EQ(with(place_of("#Strings") - 4, std::uint32_t{1}), "fine") << "an empty text alone";
  EXPECT_EQ(with(place_of("#~") - 4, std::uint32_t{0}), "0x7f0000000448: .NET metadata without tables");
  EXPECT_EQ(with(place_of("#~") + 1, '-'), "fine") << "tables that are not optimised";
  EXPECT_EQ(with(place_of("#Blob"), std::uint64_t{0x44544a23}), "0x7f0000000488: metadata of edits") << "#JTD";
}

TEST(CoreClrTables, TheVersionsTextHasAnyLength) {
  for (std::size_t length = 0; length < 40; ++length) {
    const FakeMetadata module = with_blob("x", {.version = std::string(length, 'v')});
    const BlockMemory memory = module.memory();
    const auto tables = MetadataTables::open(memory, FakeMetadata::kBase, true);
    ASSERT_TRUE(tables) << length << tables.error().text();
    EXPECT_EQ(tables->string_at(memory, 1), "Made.dll") << length;
    EXPECT_EQ(tables->blob_at(memory, 1), "x") << length;
  }
}

// Every table's rows behind the rows of those before it. Offsets into heaps have two bytes or four.
TEST(CoreClrTables, EachColumnIsWhereItIsWritten) {
  for (const bool wide : {false, true}) {
    const FakeMetadata module = with_blob("x", {.wide_heaps = wide});
    const BlockMemory memory = module.memory();
    const auto tables = MetadataTables::open(memory, FakeMetadata::kBase, true);
    ASSERT_TRUE(tables);
    constexpr auto kModule = static_cast<Table>(0);
    EXPECT_EQ(tables->rows(kModule), 1U);
    EXPECT_EQ(tables->string_at(memory, tables->column(memory, {kModule, 1}, 1).value_or(0)), "Made.dll");
    EXPECT_EQ(tables->column(memory, {kModule, 1}, 2), 1U) << "a GUID";
    EXPECT_EQ(tables->column(memory, {kModule, 1}, 4), 0U);
    EXPECT_EQ(tables->column(memory, {kModule, 1}, 5), std::nullopt) << "there are five";
    EXPECT_EQ(tables->column(memory, {kModule, 2}, 0), std::nullopt);
    EXPECT_EQ(tables->column(memory, {kModule, 0}, 0), std::nullopt);
    EXPECT_EQ(tables->string_at(memory, tables->column(memory, {Table::kTypeDef, 1}, 1).value_or(0)), "Type");
    EXPECT_EQ(tables->string_at(memory, tables->column(memory, {Table::kTypeDef, 1}, 2).value_or(0)), "Space");
    EXPECT_EQ(tables->blob_at(memory, tables->column(memory, {Table::kMethodDef, 1}, 4).value_or(0)), "x");
    EXPECT_EQ(tables->column(memory, {Table::kMethodDef, 1}, 5), 1U);
  }
}

// II.24.2.4: one byte of length, two, or four.
TEST(CoreClrTables, BlobsHaveTheirLength) {
  const auto blob = [](const std::string& bytes) {  // the heap's, behind an empty one and a length
    const FakeMetadata module = with_blob(bytes);
    const BlockMemory memory = module.memory();
    return MetadataTables::open(memory, FakeMetadata::kBase, true)->blob_at(memory, bytes.size() > 0x7f ? 3 : 2);
  };
  const std::string text(0x2000, 'b');
  EXPECT_EQ(blob("\x03"
                 "abcd"),
            "abc");
  EXPECT_EQ(blob(std::string("\0abcd", 5)), "");
  EXPECT_EQ(blob("\x7f" + text).size(), 0x7fU);
  EXPECT_EQ(blob("\x80\x03"
                 "abcd"),
            "abc");
  EXPECT_EQ(blob("\x81\x02" + text).size(), 0x102U);
  EXPECT_EQ(blob("\xbf\xff" + text), std::string(MetadataTables::kMaxBlob, 'b')) << "cut";
  EXPECT_EQ(blob(std::string("\xc0\0\0\x03"
                             "abcd",
                             8)),
            "abc");
  EXPECT_EQ(blob(std::string("\xc0\0\x01\x02", 4) + text).size(), 0x102U);
  EXPECT_EQ(blob(std::string("\xc0\x01\0\x02", 4) + text).size(), MetadataTables::kMaxBlob);
  EXPECT_EQ(blob(std::string("\xc1\0\0\x02", 4) + text).size(), MetadataTables::kMaxBlob);
  // What the heap does not have: the rest of it, or nothing where the length is cut off.
  EXPECT_EQ(blob("\x05"
                 "abcd"),
            "abcd");
  EXPECT_EQ(blob("\x81"), "");
  EXPECT_EQ(blob("\xc0"), "");
  EXPECT_EQ(blob(std::string("\xc0\0\0", 3)), "");
  EXPECT_EQ(blob(std::string("\xc0\0\0\x03", 4)), "");
}

TEST(CoreClrTables, OffsetsBehindAHeapLeadToNothing) {
  const FakeMetadata module = with_blob("abc");
  const BlockMemory memory = module.memory();
  const auto tables = MetadataTables::open(memory, FakeMetadata::kBase, true);
  ASSERT_TRUE(tables);
  EXPECT_EQ(tables->blob_at(memory, 1), "abc");
  EXPECT_EQ(tables->blob_at(memory, 4), "") << "the heap's last byte: a length without bytes";
  EXPECT_EQ(tables->blob_at(memory, 5), "");
  EXPECT_EQ(tables->blob_at(memory, 0), "");
  EXPECT_EQ(tables->blob_at(memory, 0x7fff'ffff), "");
  EXPECT_EQ(tables->string_at(memory, 1), "Made.dll");
  EXPECT_EQ(tables->string_at(memory, 0), "");
  EXPECT_EQ(tables->string_at(memory, 0x7fff'ffff), "");
}

TEST(CoreClrTables, TablesHaveBounds) {
  const std::uint64_t tables = kRoot + 80;  // behind the root and the streams' headers
  ASSERT_EQ(with(tables + 8, std::uint64_t{1} << 0 | 1 << 2 | 1 << 6), "fine");
  EXPECT_EQ(with(tables + 24, (std::uint32_t{1} << 24) + 1),
            "0x7f00000004b0: more rows than a table of metadata can have (0x1000001)");
  EXPECT_NE(with(tables + 24, std::uint32_t{1} << 24).find("tables of metadata that do not fit"), std::string::npos);
  EXPECT_EQ(with(tables + 24, std::uint32_t{1}), "fine");
  EXPECT_NE(with(tables + 24, std::uint32_t{2}).find("tables of metadata that do not fit"), std::string::npos)
      << "one row more than there is";
}

// Whatever cannot be read is an error, with its place. A stream whose name cannot be read is not there.
TEST(CoreClrTables, EachReadThatFailsIsAnError) {
  struct Failing final : Memory {
    explicit Failing(const FakeMetadata& of) : memory(of.memory()) {}
    bool read(std::uint64_t address, void* to, std::size_t size) const override {
      if (reads++ == fails) return false;
      return memory.read(address, to, size);
    }
    BlockMemory memory;
    mutable std::size_t reads = 0;
    std::size_t fails = SIZE_MAX;
  };
  Failing memory(with_blob("x"));
  ASSERT_EQ(opened(memory), "fine");
  const std::size_t reads = memory.reads;
  std::string places;
  for (memory.fails = 0; memory.fails < reads; ++memory.fails) {
    memory.reads = 0;
    const std::string said = opened(memory);
    const std::string_view place = std::string_view(said).substr(0, said.find(':'));
    if (said.find("cannot be read") != std::string::npos)
      places += "0x" + std::string(place.substr(place.size() - 3)) + " ";
    else if (said.find("without") != std::string::npos)
      places += "without ";
    else
      places += said + " ";
  }
  EXPECT_EQ(
      places,
      "0x000 0x000 0x080 0x080 0x080 0x080 0x178 0x080 without "  // the image's headers, and the place of the root
      "0x448 0x448 0x466 "                                        // the root
      "0x468 0x468 without 0x474 0x474 without without "          // #~, #Strings
      "0x488 0x488 fine "                                         // without #Blob signatures are not known
      "0x498 0x498 0x4b0 0x4b4 0x4b8 ");                          // how many rows there are
}

// A type's methods follow its first one, up to those of the next type.
TEST(CoreClrTables, MethodsBelongToTheTypeInFront) {
  FakeMetadata module(FakeMetadata::Options{});
  for (const std::uint32_t first : {1U, 1U, 3U, 4U, 4U}) (void)module.type("T", "", first);
  for (int i = 0; i < 6; ++i) (void)module.method("M", "x");
  const BlockMemory memory = module.memory();
  const auto tables = MetadataTables::open(memory, FakeMetadata::kBase, true);
  ASSERT_TRUE(tables);
  std::string owners;
  for (std::uint32_t method = 1; method <= 6; ++method)
    owners += std::to_string(tables->owner_of(memory, method)) + ' ';
  EXPECT_EQ(owners, "2 2 3 5 5 5 ") << "the first and the fourth have none";
  EXPECT_EQ(tables->owner_of(memory, 0), 0U);
}

}  // namespace
}  // namespace windlass::runtimes::coreclr
