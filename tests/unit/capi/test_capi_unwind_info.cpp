// Unwind information through the C interface is what the C++ reader gives.
#include <gtest/gtest.h>

#include <vector>

#include "support/pe_image_builder.h"
#include "support/sized.h"
#include "windlass/c/unwind_info.h"
#include "windlass/unwind_info.h"

namespace {

using windlass::test::PeImageBuilder;
using windlass::test::sized;
using windlass::test::UnwindInfoBytes;

struct Collected {
  const windlass_unwind_info* info = nullptr;
  std::vector<windlass_unwind_function> functions;
  std::vector<windlass_unwind_row> rows;
  std::vector<windlass_error> problems;
  std::size_t most_functions = SIZE_MAX;
};
int add_row(const windlass_unwind_row* row, void* user) {
  static_cast<Collected*>(user)->rows.push_back(*row);
  return 0;
}
void add_problem(const windlass_error* problem, void* user) {
  static_cast<Collected*>(user)->problems.push_back(*problem);
}
int add_function(const windlass_unwind_function* function, void* user) {
  auto* all = static_cast<Collected*>(user);
  all->functions.push_back(*function);
  EXPECT_EQ(windlass_each_row(all->info, function, add_row, add_problem, all), WINDLASS_OK);
  return all->functions.size() == all->most_functions;
}

TEST(CApiUnwindInfo, IsWhatTheReaderGives) {
  windlass_unwind_info* info = nullptr;
  auto error = sized<windlass_error>();
  ASSERT_EQ(windlass_open_unwind_info("/proc/self/exe", &info, &error), WINDLASS_OK) << error.text;
  const auto reader = windlass::open_unwind_info("/proc/self/exe");
  ASSERT_TRUE(reader);
  auto file = sized<windlass_unwind_file>();
  ASSERT_EQ(windlass_describe_unwind_info(info, &file), WINDLASS_OK);
  EXPECT_EQ(file.architecture, windlass_native_architecture());
  EXPECT_EQ(file.format, static_cast<unsigned>(WINDLASS_FORMAT_DWARF));
  EXPECT_EQ(file.build_id, (*reader)->build_id());
  Collected all;
  all.info = info;
  ASSERT_EQ(windlass_each_function(info, add_function, add_problem, &all), WINDLASS_OK);
  EXPECT_TRUE(all.problems.empty());
  const auto functions = (*reader)->functions();
  ASSERT_EQ(all.functions.size(), functions.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    ASSERT_EQ(all.functions[i].begin, functions[i].begin);
    ASSERT_EQ(all.functions[i].personality, functions[i].personality.address);
    for (const windlass::FrameRow& row : (*reader)->rows(functions[i])) {
      ASSERT_LT(at, all.rows.size());
      const windlass_unwind_row& got = all.rows[at++];
      ASSERT_EQ(got.begin, row.begin);
      ASSERT_EQ(got.end, row.end);
      ASSERT_EQ(got.rule_count, row.registers.size());
      if (row.cfa.is(windlass::CfaRule::kRegister)) {
        ASSERT_EQ(got.cfa.kind, WINDLASS_RULE_REGISTER_VALUE);
        ASSERT_EQ(got.cfa.base, row.cfa.reg());
        ASSERT_EQ(got.cfa.offset, row.cfa.offset());
      }
      std::size_t rule = 0;
      for (const windlass::RegisterEntry& entry : row.registers) {
        ASSERT_EQ(got.rules[rule].number, entry.reg);
        ASSERT_EQ(got.rules[rule].kind, entry.rule.kind());
        if (entry.rule.is(windlass::RegisterRule::kAtCfa)) {
          ASSERT_EQ(got.rules[rule].offset, entry.rule.offset());
        }
        ++rule;
      }
    }
  }
  EXPECT_EQ(at, all.rows.size());
  EXPECT_EQ(windlass_close_unwind_info(info), WINDLASS_OK);
}

class Image : public testing::Test {
 protected:
  Image() {
    UnwindInfoBytes info;  // push rbx; sub rsp, 32, and a handler of unwinding alone
    info.flags = 2;
    info.prolog_size = 5;
    info.slots = {UnwindInfoBytes::slot(5, 2, 3), UnwindInfoBytes::slot(1, 0, 3)};
    begin_ = builder_.text({0x53, 0x48, 0x83, 0xec, 0x20, 0x90, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc3});
    builder_.entry(begin_, builder_.next_text(), builder_.data(info.bytes().u32(0x1234)));
    bad_ = builder_.text({0x90, 0xc3});
    builder_.entry(bad_, builder_.next_text(), 0x5555'5554);  // outside of the image
    bytes_ = builder_.build();
    EXPECT_EQ(windlass_read_unwind_info(bytes_.data(), bytes_.size(), 0, &info_, nullptr), WINDLASS_OK);
  }
  ~Image() override { (void)windlass_close_unwind_info(info_); }

  PeImageBuilder builder_;
  std::uint32_t begin_ = 0, bad_ = 0;
  std::vector<std::uint8_t> bytes_;
  windlass_unwind_info* info_ = nullptr;
};

TEST_F(Image, HasFunctionsRowsAndPlacesOfErrors) {
  auto function = sized<windlass_unwind_function>();
  ASSERT_EQ(windlass_find_function(info_, begin_ + 1, &function, nullptr), WINDLASS_OK);
  EXPECT_EQ(function.begin, begin_);
  EXPECT_EQ(function.personality, 0x1234u);
  EXPECT_EQ(function.flags, WINDLASS_ON_TERMINATION);
  auto row = sized<windlass_unwind_row>();
  ASSERT_EQ(windlass_row_at(info_, begin_ + 5, &row, nullptr), WINDLASS_OK);
  EXPECT_EQ(row.cfa.kind, WINDLASS_RULE_REGISTER_VALUE);
  EXPECT_EQ(row.cfa.base, 7);  // rsp
  EXPECT_EQ(row.cfa.offset, 48);
  EXPECT_EQ(row.return_address.kind, WINDLASS_RULE_AT_CFA);
  EXPECT_EQ(row.return_address.offset, -8);
  ASSERT_GE(row.rule_count, 1u);
  EXPECT_EQ(row.rules[0].number, 3);  // rbx
  EXPECT_EQ(row.rules[0].offset, -16);
  auto error = sized<windlass_error>();
  EXPECT_EQ(windlass_row_at(info_, bad_, &row, &error), windlass_find_function(info_, bad_, &function, nullptr));
  EXPECT_EQ(error.where, 0x5555'5554u);
  EXPECT_EQ(windlass_find_function(info_, 0x9000, &function, nullptr), WINDLASS_NOT_FOUND);
  Collected all;
  all.info = info_;
  all.most_functions = 1;
  ASSERT_EQ(windlass_each_function(info_, add_function, add_problem, &all), WINDLASS_OK);
  EXPECT_EQ(all.functions.size(), 1u);  // the callback said so
  ASSERT_EQ(all.problems.size(), 1u);
  EXPECT_EQ(all.problems[0].where, 0x5555'5554u);
}

TEST_F(Image, MisuseIsAnAnswer) {
  auto function = sized<windlass_unwind_function>();
  auto row = sized<windlass_unwind_row>();
  EXPECT_EQ(windlass_find_function(nullptr, begin_, &function, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_find_function(info_, begin_, nullptr, nullptr), WINDLASS_INVALID);
  row.size = 8;
  EXPECT_EQ(windlass_row_at(info_, begin_, &row, nullptr), WINDLASS_INVALID);
  EXPECT_EQ(windlass_each_function(info_, nullptr, nullptr, nullptr), WINDLASS_INVALID);
  function.record_offset = ~std::uint64_t{0};  // of no record
  EXPECT_EQ(windlass_each_row(info_, &function, add_row, nullptr, nullptr), WINDLASS_OK);
  windlass_unwind_info* other = nullptr;
  EXPECT_EQ(windlass_read_unwind_info(bytes_.data(), bytes_.size(), 2, &other, nullptr), WINDLASS_INVALID);
  EXPECT_NE(windlass_read_unwind_info(bytes_.data(), 16, 0, &other, nullptr), WINDLASS_OK);
  EXPECT_EQ(windlass_open_unwind_info("/nowhere", &other, nullptr), WINDLASS_SYSTEM);
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(windlass_close_unwind_info(info_), WINDLASS_OK);
  EXPECT_EQ(windlass_close_unwind_info(info_), WINDLASS_INVALID);
  EXPECT_EQ(windlass_row_at(info_, begin_, &row, nullptr), WINDLASS_INVALID);
}

}  // namespace
