// Whole functions are followed once a file, and again where generated code has changed.
#include "walk/function_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "walk/module.h"

namespace windlass::walk {
namespace {

using flow::CodeKind;
using flow::CodeSource;

// sub rsp, 24; call; add rsp, 24; ret, between padding.
class FunctionOfAFile : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kFunction = 0x1040, kSize = 0x2000;
  FunctionOfAFile() {
    const std::uint8_t code[]{0x48, 0x83, 0xec, 0x18, 0xe8, 0, 0, 0x10, 0, 0x48, 0x83, 0xc4, 0x18, 0xc3};
    std::ranges::copy(code, file_.begin() + kFunction);
  }
  // The CFA's distance from rsp in the row that ask(source, row) gives, 0 without one. The file is mapped at `bias`.
  template <typename Ask>
  std::int64_t offset(std::uint64_t bias, Ask&& ask) {
    const auto read = [&](std::uint64_t at, void* to, std::size_t size) {
      ++reads_;
      if (at - bias >= kSize || size > kSize - (at - bias)) return false;
      std::memcpy(to, &file_[at - bias], size);
      return true;
    };
    const auto kind = [&](std::uint64_t at) { return at - bias < kSize ? CodeKind::kFile : CodeKind::kNoCode; };
    const auto plausible = [](const FrameRow&) { return true; };
    FrameRow row;
    const CodeSource source{Architecture::kX86_64, read, kind, plausible};
    return ask(source, row) ? row.cfa.offset() : 0;
  }
  // How often the file was read since the last call.
  unsigned reads() { return std::exchange(reads_, 0); }
  std::vector<std::uint8_t> file_ = std::vector<std::uint8_t>(kSize, 0xcc);

 private:
  unsigned reads_ = 0;
};

TEST_F(FunctionOfAFile, IsFollowedOnceWhereverTheFileIsMapped) {
  FunctionMemo memo;
  const auto row_at = [&](std::uint64_t bias, std::uint64_t address, std::uint64_t number) {
    return offset(bias, [&](const CodeSource& source, FrameRow& row) {
      return memo.row_at({number, address}, bias, false, source, row);
    });
  };
  EXPECT_EQ(row_at(0x10000, kFunction + 8, 1), 32);
  EXPECT_NE(reads(), 0U);
  EXPECT_EQ(row_at(0x10000, kFunction + 13, 1), 8);
  EXPECT_EQ(row_at(0x70000, kFunction + 4, 1), 32);
  EXPECT_EQ(reads(), 0U);
  EXPECT_EQ(row_at(0x10000, kFunction + 4, 2), 32) << "another file's";
  EXPECT_NE(reads(), 0U);
  EXPECT_EQ(row_at(0x10000, 0x800, 1), 0) << "no function";
  EXPECT_NE(reads(), 0U);
  EXPECT_EQ(row_at(0x10000, 0x800, 1), 0);
  EXPECT_EQ(reads(), 0U);
  ASSERT_NE(memo.known({1, kFunction + 8}), nullptr);
  EXPECT_EQ(memo.known({1, kFunction + 8})->range.begin, kFunction) << "as the file has it";
  EXPECT_EQ(memo.known({3, kFunction + 8}), nullptr);
  EXPECT_EQ(memo.known({1, 0x10}), nullptr);
  const auto kept = memo.known({1, kFunction + 8});
  memo.clear();
  EXPECT_EQ(memo.known({1, kFunction + 8}), nullptr);
  EXPECT_NE(kept->find(kFunction + 8), nullptr) << "who has it keeps it";
  EXPECT_EQ(row_at(0x10000, kFunction + 8, 1), 32);
  EXPECT_NE(reads(), 0U);
}

TEST_F(FunctionOfAFile, AllGoWhereThereAreTooManyRows) {
  FunctionMemo memo;
  const auto follow = [&](std::uint64_t number) {
    return offset(0x10000, [&](const CodeSource& source, FrameRow& row) {
      return memo.row_at({number, kFunction + 8}, 0x10000, false, source, row);
    });
  };
  EXPECT_EQ(follow(0), 32);
  const std::size_t rows = memo.known({0, kFunction})->rows.size(), most = FunctionMemo::kMaxRows / rows;
  for (std::size_t i = 1; i < most; ++i) (void)follow(i);
  EXPECT_NE(memo.known({0, kFunction}), nullptr);
  EXPECT_EQ(follow(most), 32);
  EXPECT_EQ(memo.known({0, kFunction}), nullptr);
  EXPECT_NE(memo.known({most, kFunction}), nullptr);
  for (std::size_t i = 1; i < most; ++i) (void)follow(most + i);
  EXPECT_NE(memo.known({most, kFunction}), nullptr) << "counted anew";
}

// The same of generated code, which may become other code.
TEST_F(FunctionOfAFile, IsFollowedAgainWhereItHasChanged) {
  FunctionMemo memo;
  const auto row_at = [&](std::uint64_t address) {
    return offset(0x10000, [&](const CodeSource& source, FrameRow& row) {
      return memo.row_at({1, address}, 0x10000, true, source, row);
    });
  };
  EXPECT_EQ(row_at(kFunction + 8), 32);
  const unsigned to_follow = reads();
  EXPECT_EQ(row_at(kFunction + 13), 8);
  const unsigned to_compare = reads();
  EXPECT_LT(to_compare, to_follow) << "the code is read, and not followed";
  EXPECT_NE(to_compare, 0U);
  const auto kept = memo.known({1, kFunction + 8});
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->code.size(), kept->range.end - kept->range.begin);
  EXPECT_EQ(kept->code[4], std::byte{0xe8});
  file_[kFunction + 3] = file_[kFunction + 12] = 0x28;
  EXPECT_EQ(row_at(kFunction + 8), 48);
  EXPECT_EQ(kept->code[3], std::byte{0x18}) << "who has it keeps what was there";
  EXPECT_EQ(memo.known({1, kFunction + 8})->code[3], std::byte{0x28});
  file_[kFunction + 12] = 0x18;
  EXPECT_EQ(row_at(kFunction + 8), 0) << "the return disagrees";
  EXPECT_TRUE(memo.known({1, kFunction + 8})->code.empty());
}

TEST_F(FunctionOfAFile, ThatChangesAllTheTimeCountsOnce) {
  FunctionMemo memo;
  const auto follow = [&](std::uint64_t number, bool changes) {
    return offset(0x10000, [&](const CodeSource& source, FrameRow& row) {
      return memo.row_at({number, kFunction + 8}, 0x10000, changes, source, row);
    });
  };
  EXPECT_EQ(follow(1, false), 32);
  const std::size_t rows = memo.known({1, kFunction})->rows.size();
  for (std::size_t i = 0; i <= FunctionMemo::kMaxRows / rows; ++i) {
    file_[kFunction + 3] = file_[kFunction + 12] = i % 2 == 0 ? 0x28 : 0x18;
    EXPECT_EQ(follow(2, true), i % 2 == 0 ? 48 : 32);
  }
  EXPECT_NE(memo.known({1, kFunction}), nullptr);
}

TEST_F(FunctionOfAFile, IsKeptByTheModuleWhereNobodyElseKeepsIt) {
  constexpr std::uint64_t kBias = 0x10000;
  ModuleInfo info;
  info.begin = kBias;
  info.end = kBias + kSize;
  const Module module(info);
  const auto row_at = [&](std::uint64_t address) {
    return offset(kBias, [&](const CodeSource& source, FrameRow& row) {
      return module.row_of_whole_function(kBias + address, source, row);
    });
  };
  EXPECT_EQ(row_at(kFunction + 8), 32);
  EXPECT_NE(reads(), 0U);
  EXPECT_EQ(row_at(kFunction + 13), 8);
  EXPECT_EQ(reads(), 0U);
}

}  // namespace
}  // namespace windlass::walk
