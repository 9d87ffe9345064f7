// Sections that other tools made, and sections that nobody should.
#include "formats/sframe/read.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "support/sframe_bytes.h"

namespace windlass {
namespace {

using sframe::Section;

ByteView view(const std::vector<std::byte>& bytes, std::uint64_t origin = 0) {
  return {bytes.data(), bytes.size(), origin};
}

struct Listing {
  std::vector<std::string> rows;
  std::vector<Error> errors;
};

Listing list(const Section& section) {
  Listing out;
  const auto report = [&](const Error& error) { out.errors.push_back(error); };
  const auto each = [&](const sframe::Function& function) {
    const auto add = [&](const FrameRow& row) {
      out.rows.push_back(fmt::format("{:x} {}", row.begin, test::sframe_text(section.architecture(), row)));
    };
    if (const auto done = section.for_each_row(function, add); !done) report(done.error());
    return true;
  };
  section.for_each_function(each, report);
  return out;
}

// Every address has the row that the listing has there.
void expect_look_ups(const Section& section) {
  const auto never = [](const Error& error) { ADD_FAILURE() << error.text(); };
  const auto each = [&](const sframe::Function& function) {
    const auto look = [&](const FrameRow& row) {
      for (std::uint64_t at = row.begin; at < row.end; ++at) {
        const auto found = section.find(at);
        EXPECT_TRUE(found);
        if (!found) return;
        FrameRow there;
        EXPECT_TRUE(section.row_at(*found, at, there));
        EXPECT_EQ(there.begin, row.begin);
        EXPECT_EQ(there.end, row.end);
        EXPECT_EQ(test::sframe_text(section.architecture(), there), test::sframe_text(section.architecture(), row));
      }
    };
    EXPECT_TRUE(section.for_each_row(function, look));
    return true;
  };
  section.for_each_function(each, never);
}

TEST(SFrameRead, X64AsReadelfSays) {
  const auto bytes = test::from_hex(test::kSFrameX64);
  const auto section = Section::parse(view(bytes), test::kSFrameX64Address);
  ASSERT_TRUE(section) << section.error().text();
  EXPECT_EQ(section->architecture(), Architecture::kX86_64);
  EXPECT_EQ(section->size(), 5u);
  const Listing listing = list(*section);
  EXPECT_EQ(listing.rows, test::kSFrameX64Rows);
  EXPECT_TRUE(listing.errors.empty());
  expect_look_ups(*section);
}

TEST(SFrameRead, A64AsReadelfSays) {
  const auto bytes = test::from_hex(test::kSFrameA64);
  const auto section = Section::parse(view(bytes), test::kSFrameA64Address);
  ASSERT_TRUE(section) << section.error().text();
  EXPECT_EQ(section->architecture(), Architecture::kAArch64);
  EXPECT_EQ(list(*section).rows, test::kSFrameA64Rows);
  EXPECT_FALSE(section->function(0)->b_key);
  EXPECT_TRUE(section->function(2)->b_key);
  expect_look_ups(*section);
}

// Whatever else a call preserves may be anywhere: a walk must not take it for unchanged.
TEST(SFrameRead, OtherPreservedRegistersAreLost) {
  const auto bytes = test::from_hex(test::kSFrameX64);
  const auto section = Section::parse(view(bytes), test::kSFrameX64Address);
  ASSERT_TRUE(section);
  FrameRow row;
  ASSERT_TRUE(section->row_at(*section->find(0x1020), 0x1020, row));
  for (const RegisterNumber reg : {3, 12, 13, 14, 15}) {
    const RegisterRule* rule = row.registers.find(reg);
    ASSERT_NE(rule, nullptr) << reg;
    EXPECT_TRUE(rule->is(RegisterRule::kUndefined)) << reg;
  }
  EXPECT_EQ(row.registers.find(6), nullptr) << "rbp is as it was";
  EXPECT_EQ(row.registers.size(), 5u);
}

TEST(SFrameRead, WhereNothingIs) {
  const auto bytes = test::from_hex(test::kSFrameX64);
  const auto section = Section::parse(view(bytes), test::kSFrameX64Address);
  ASSERT_TRUE(section);
  for (const std::uint64_t address : {0x0ULL, 0xfffULL, 0x1025ULL, ~0ULL}) {
    const auto found = section->find(address);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  }
  EXPECT_EQ(section->function(5).error().code, ErrorCode::kOutOfRange);
}

// An index that is not sorted is looked through.
TEST(SFrameRead, Unsorted) {
  auto bytes = test::from_hex(test::kSFrameX64);
  bytes[3] = std::byte{4};
  for (std::size_t i = 0; i < 16; ++i) std::swap(bytes[28 + i], bytes[28 + 32 + i]);  // the first and the third
  const auto moved = [&](std::size_t at, int by) {
    std::int64_t start;
    std::memcpy(&start, &bytes[at], 8);
    start += by;
    std::memcpy(&bytes[at], &start, 8);
  };
  moved(28, 32), moved(28 + 32, -32);
  const auto section = Section::parse(view(bytes), test::kSFrameX64Address);
  ASSERT_TRUE(section);
  EXPECT_EQ(section->function(0)->begin, 0x101eu);
  EXPECT_EQ(section->find(0x1003)->begin, 0x1000u);
  EXPECT_EQ(section->find(0x101e)->begin, 0x101eu);
  expect_look_ups(*section);
}

// A linkage table: 16 bytes that repeat, as ld makes it (version 3; 0x1010 to 0x1040 has three of them).
TEST(SFrameRead, ARepeatedBlock) {
  const auto bytes = test::from_hex(
      "e2de0305 0300f800 01000000 02000000 0b000000 00000000 10000000"
      "f4ffffff ffffffff 30000000 00000000 02001000 10000308 0b0310");
  const auto section = Section::parse(view(bytes), 0x1000);
  ASSERT_TRUE(section) << section.error().text();
  const std::vector<std::string> expected = {"1010 sp+8 u f",  "101b sp+16 u f", "1020 sp+8 u f",
                                             "102b sp+16 u f", "1030 sp+8 u f",  "103b sp+16 u f"};
  EXPECT_EQ(list(*section).rows, expected);
  expect_look_ups(*section);
}

// Starts that count from the section, as older tools wrote them, and a header with more behind it.
TEST(SFrameRead, StartsFromTheSectionAndALongerHeader) {
  const auto bytes = test::from_hex(
      "e2de0201 0300f802 01000000 01000000 03000000 00000000 14000000 abcd"
      "00f0ffff 10000000 00000000 01000000 00000000 000308");
  const auto section = Section::parse(view(bytes), 0x2000);
  ASSERT_TRUE(section) << section.error().text();
  EXPECT_EQ(list(*section).rows, std::vector<std::string>{"1000 sp+8 u f"});
}

// ---- what is refused, with its place ------------------------------------------------------------------------------

void put(std::vector<std::byte>& bytes, std::size_t at, std::initializer_list<int> values) {
  for (const int value : values) bytes[at++] = static_cast<std::byte>(value);
}

struct Damage {
  const char* name;
  std::function<void(std::vector<std::byte>&)> change;
  ErrorCode code;
  std::uint64_t where;  // an offset in the section
};

constexpr std::uint64_t kOrigin = 0x500;

TEST(SFrameRead, HeadersThatAreRefused) {
  const Damage all[] = {
      {"cut short", [](auto& b) { b.resize(27); }, ErrorCode::kTruncated, 0},
      {"other byte order",
       [](auto& b) {
         put(b, 0, {0xde, 0xe2});
       },
       ErrorCode::kUnsupported, 0},
      {"no magic", [](auto& b) { put(b, 0, {0}); }, ErrorCode::kMalformed, 0},
      {"version 0", [](auto& b) { put(b, 2, {0}); }, ErrorCode::kUnsupported, 2},
      {"version 4", [](auto& b) { put(b, 2, {4}); }, ErrorCode::kUnsupported, 2},
      {"big-endian AArch64", [](auto& b) { put(b, 4, {1}); }, ErrorCode::kUnsupported, 4},
      {"s390x", [](auto& b) { put(b, 4, {4}); }, ErrorCode::kUnsupported, 4},
      {"no return address", [](auto& b) { put(b, 6, {0}); }, ErrorCode::kUnsupported, 6},
      {"too many functions",
       [](auto& b) {
         put(b, 8, {0, 0, 0, 0x80});
       },
       ErrorCode::kTruncated, 0},
      {"more rows than bytes", [](auto& b) { put(b, 12, {45}); }, ErrorCode::kMalformed, 0},
      {"rows past the end", [](auto& b) { put(b, 16, {0x59}); }, ErrorCode::kTruncated, 0},
      {"functions past the end",
       [](auto& b) {
         put(b, 20, {0xff, 0xff, 0xff, 0xff});
       },
       ErrorCode::kTruncated, 0},
      {"rows far past the end",
       [](auto& b) {
         put(b, 24, {0xff, 0xff, 0xff, 0xff});
       },
       ErrorCode::kTruncated, 0},
  };
  for (const Damage& damage : all) {
    auto bytes = test::from_hex(test::kSFrameX64);
    damage.change(bytes);
    const auto section = Section::parse(view(bytes, kOrigin), test::kSFrameX64Address);
    ASSERT_FALSE(section) << damage.name;
    EXPECT_EQ(section.error().code, damage.code) << damage.name;
    EXPECT_EQ(section.error().where, kOrigin + damage.where) << damage.name;
  }
}

// The first function is at 28, what is said of all its rows at 0x6c, the first row at 0x71 (5 bytes), the second at
// 0x75.
TEST(SFrameRead, FunctionsThatAreRefused) {
  const Damage all[] = {
      {"attributes past the end",
       [](auto& b) {
         put(b, 28 + 12, {0xff, 0xff});
       },
       ErrorCode::kTruncated, 0x1006b},
      {"rows of an unknown size", [](auto& b) { put(b, 0x6e, {3}); }, ErrorCode::kUnsupported, 28},
      {"an unknown type", [](auto& b) { put(b, 0x6f, {2}); }, ErrorCode::kUnsupported, 28},
      {"a block of nothing", [](auto& b) { put(b, 0x6e, {0x10}); }, ErrorCode::kMalformed, 28},
      {"past the address space",
       [](auto& b) {
         put(b, 28, {0x14, 0xdf, 0xff, 0xff});
       },
       ErrorCode::kOutOfRange, 28},
      {"more rows than there are", [](auto& b) { put(b, 0x6c, {15}); }, ErrorCode::kMalformed, 28},
      {"words of 8 bytes", [](auto& b) { put(b, 0x72, {0x64}); }, ErrorCode::kMalformed, 0x71},
      {"a control word without its offset", [](auto& b) { put(b, 0x72, {0x02}); }, ErrorCode::kMalformed, 0x71},
      {"words behind the frame pointer", [](auto& b) { put(b, 0x72, {0x1e}); }, ErrorCode::kMalformed, 0x71},
      {"a CFA from the CFA", [](auto& b) { put(b, 0x73, {2}); }, ErrorCode::kMalformed, 28},
      {"an unknown bit", [](auto& b) { put(b, 0x73, {0x3d}); }, ErrorCode::kUnsupported, 28},
      {"rows out of order", [](auto& b) { put(b, 0x75, {0}); }, ErrorCode::kMalformed, 28},
  };
  for (const Damage& damage : all) {
    auto bytes = test::from_hex(test::kSFrameX64);
    damage.change(bytes);
    const auto section = Section::parse(view(bytes, kOrigin), test::kSFrameX64Address);
    ASSERT_TRUE(section) << damage.name;
    const Listing listing = list(*section);
    ASSERT_FALSE(listing.errors.empty()) << damage.name;
    EXPECT_EQ(listing.errors[0].code, damage.code) << damage.name << ": " << listing.errors[0].text();
    EXPECT_EQ(listing.errors[0].where, kOrigin + damage.where) << damage.name << ": " << listing.errors[0].text();
  }
}

// A register that no row has room for, by a control word of four bytes.
TEST(SFrameRead, ARegisterAboveThoseOfRows) {
  const auto bytes = test::from_hex(
      "e2de0305 0300f800 01000000 01000000 0f000000 00000000 10000000"
      "e4efffff ffffffff 10000000 00000000 01000001 00 00 44 01080000 08000000");
  const auto section = Section::parse(view(bytes), 0x2000);
  ASSERT_TRUE(section) << section.error().text();
  const Listing listing = list(*section);
  ASSERT_EQ(listing.errors.size(), 1u);
  EXPECT_EQ(listing.errors[0].code, ErrorCode::kLimit);
  EXPECT_EQ(listing.errors[0].detail, 256u);
}

// Every prefix, and every byte turned around, is read or refused; nothing is read behind the end.
TEST(SFrameRead, DamagedAnywhere) {
  const auto whole = test::from_hex(test::kSFrameX64);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(Section::parse(view(cut), 0)) << size;
  }
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    auto bytes = whole;
    bytes[at] ^= std::byte{0xff};
    const auto section = Section::parse(view(bytes), 0x2000);
    if (!section || !list(*section).errors.empty()) ++refused;
  }
  EXPECT_GT(refused, 60u);
}

}  // namespace
}  // namespace windlass
