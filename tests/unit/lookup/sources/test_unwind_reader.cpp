// The public reader: what a program sees of unwind information, without any of the library's own headers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/pe_image_builder.h"
#include "windlass/backtrace.h"
#include "windlass/unwind_info.h"

namespace windlass {
namespace {

std::span<const std::byte> bytes_of(const std::vector<std::uint8_t>& bytes) { return std::as_bytes(std::span(bytes)); }

TEST(UnwindReader, ReadsItsOwnProgram) {
  const auto reader = open_unwind_info("/proc/self/exe");
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ((*reader)->format(), UnwindFormat::kDwarf);
  EXPECT_EQ((*reader)->architecture(), kOwnArchitecture);
  EXPECT_TRUE((*reader)->problems().empty());
  std::vector<Error> problems;
  const auto functions = (*reader)->functions(&problems);
  EXPECT_GT(functions.size(), 100u);
  EXPECT_TRUE(problems.empty()) << problems[0].text();
  EXPECT_TRUE(std::ranges::is_sorted(functions, {}, &UnwindFunction::begin));
  for (const UnwindFunction& function : functions) {
    const auto rows = (*reader)->rows(function, &problems);
    ASSERT_TRUE(problems.empty()) << problems[0].text();
    ASSERT_FALSE(rows.empty());
    EXPECT_EQ(rows.front().begin, function.begin);
    EXPECT_EQ(rows.back().end, function.end);
    for (const FrameRow& row : rows) {
      const auto at = (*reader)->row_at(row.end - 1);
      ASSERT_TRUE(at) << at.error().text();
      ASSERT_EQ(at->begin, row.begin);
      ASSERT_EQ(at->cfa, row.cfa);
      ASSERT_EQ(at->registers.size(), row.registers.size());
    }
  }
}

TEST(UnwindReader, SaysWhereARecordIsMalformed) {
  test::PeImageBuilder builder;
  const std::uint32_t good = builder.text({0x90, 0xc3}), bad = builder.text({0x90, 0xc3});
  const std::uint32_t info = builder.data(test::UnwindInfoBytes{}.bytes());
  builder.entry(good, bad, info);
  builder.entry(bad, builder.next_text(), 0x5555'5554);  // outside of the image
  const auto file = builder.build();
  const auto reader = read_unwind_info(bytes_of(file));
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ((*reader)->format(), UnwindFormat::kWinX64);
  EXPECT_EQ((*reader)->architecture(), Architecture::kX86_64);
  EXPECT_TRUE((*reader)->row_at(good));
  const auto row = (*reader)->row_at(bad);
  ASSERT_FALSE(row);
  EXPECT_EQ(row.error().where, 0x5555'5554u) << row.error().text();
  std::vector<Error> problems;
  EXPECT_EQ((*reader)->functions(&problems).size(), 2u);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].where, 0x5555'5554u) << problems[0].text();
  EXPECT_EQ((*reader)->row_at(0x9000).error().code, ErrorCode::kNotFound);
}

TEST(UnwindReader, ReadsWhatIsLoaded) {
  test::PeImageBuilder builder;
  const std::uint32_t begin = builder.text({0x90, 0xc3});
  builder.entry(begin, builder.next_text(), builder.data(test::UnwindInfoBytes{}.bytes()));
  const auto image = builder.build(true);
  const auto reader = read_unwind_info(bytes_of(image), ImageLayout::kLoaded);
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_EQ((*reader)->functions().size(), 1u);
  EXPECT_EQ((*reader)->function_at(begin + 1)->begin, begin);
}

TEST(UnwindReader, RefusesWhatIsNoImage) {
  EXPECT_EQ(open_unwind_info("/nowhere").error().code, ErrorCode::kSystem);
  const std::vector<std::uint8_t> text(64, 'x');
  EXPECT_FALSE(read_unwind_info(bytes_of(text)));
  EXPECT_FALSE(read_unwind_info({}));
}

}  // namespace
}  // namespace windlass
