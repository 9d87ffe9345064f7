// Kept results of following code must equal those of following it, whatever the stacks at hand answer.
#include "walk/code_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "windlass/backtrace.h"

extern "C" const char etext;  // the linker's

namespace windlass::walk {
namespace {

using flow::CodeKind;
using flow::CodeSource;

constexpr CodeMemo::Key key_of(std::uint64_t address, std::uint64_t code = 1) {
  return {.question = CodeMemo::Question::kRow, .at = {code, address}};
}

FrameRow row_at(std::uint64_t pc, std::int32_t cfa_offset) {
  FrameRow row;
  row.begin = pc;
  row.end = pc + 1;
  row.cfa = CfaRule::at(7, cfa_offset);
  row.return_address = RegisterRule::at_cfa(-8);
  return row;
}

// Code that is followed by a function of the test's: it reads a byte, and tries rows until one is plausible.
class CodeMemoTest : public testing::Test {
 protected:
  CodeAnswer ask(std::uint64_t pc, std::int32_t plausible_offset, bool changes = false) {
    const auto read = [this](std::uint64_t, void* to, std::size_t size) {
      std::memset(to, byte_, size);
      return true;
    };
    const auto kind = [this](std::uint64_t) { return kind_; };
    const auto plausible = [&](const FrameRow& row) { return row.cfa.offset() == plausible_offset; };
    const CodeSource source{Architecture::kX86_64, read, kind, plausible};
    const auto follow = [&](const CodeSource& from) {
      ++followed_;
      CodeAnswer answer;
      std::uint8_t byte = 0;
      EXPECT_TRUE(from.read(pc, &byte, 1));
      (void)from.kind(pc);
      for (const std::int32_t offset : {16, 32, 16, 48}) {
        const FrameRow row = row_at(pc, offset + byte);
        if (!from.plausible(row)) continue;
        answer.found = true;
        answer.synthesis.row = row;
        return answer;
      }
      answer.error = {ErrorCode::kNotFound, "none", pc, 0};
      return answer;
    };
    return memo_.ask(key_of(pc), pc, changes, source, follow);
  }

  CodeMemo memo_;
  std::uint8_t byte_ = 0;
  CodeKind kind_ = CodeKind::kFile;
  unsigned followed_ = 0;
};

TEST_F(CodeMemoTest, AnAddressIsFollowedOnceForEachAnswerOfStacks) {
  for (unsigned i = 0; i < 3; ++i) {
    const CodeAnswer found = ask(0x1000, 32);
    ASSERT_TRUE(found.found);
    EXPECT_EQ(found.synthesis.row.cfa, CfaRule::at(7, 32));
    EXPECT_EQ(found.synthesis.row.begin, 0x1000u);
    EXPECT_EQ(found.synthesis.row.end, 0x1001u);
  }
  EXPECT_EQ(followed_, 1u);
  EXPECT_EQ(ask(0x1000, 16).synthesis.row.cfa, CfaRule::at(7, 16)) << "another stack";
  EXPECT_EQ(followed_, 2u);
  EXPECT_EQ(ask(0x1000, 16).synthesis.row.cfa, CfaRule::at(7, 16));
  EXPECT_EQ(ask(0x1000, 32).synthesis.row.cfa, CfaRule::at(7, 32));
  EXPECT_EQ(followed_, 2u);
}

TEST_F(CodeMemoTest, ARefusalIsKept) {
  for (unsigned i = 0; i < 3; ++i) {
    const CodeAnswer found = ask(0x1000, 99);
    EXPECT_FALSE(found.found);
    EXPECT_EQ(found.error.code, ErrorCode::kNotFound);
    EXPECT_STREQ(found.error.what, "none");
  }
  EXPECT_EQ(followed_, 1u);
}

TEST_F(CodeMemoTest, CodeThatHasChangedIsFollowedAgain) {
  EXPECT_EQ(ask(0x1000, 32, true).synthesis.row.cfa, CfaRule::at(7, 32));
  EXPECT_EQ(ask(0x1000, 32, true).synthesis.row.cfa, CfaRule::at(7, 32));
  EXPECT_EQ(followed_, 1u);
  byte_ = 16;  // the first row is now the plausible one
  EXPECT_EQ(ask(0x1000, 32, true).synthesis.row.cfa, CfaRule::at(7, 32));
  EXPECT_EQ(followed_, 2u);
  byte_ = 1;
  EXPECT_FALSE(ask(0x1000, 32, true).found) << "no row of the code of now is plausible";
  EXPECT_EQ(followed_, 3u);
}

TEST_F(CodeMemoTest, WhatLeadsToNothingKnownHoldsForAWhile) {
  kind_ = CodeKind::kNoCode;
  memo_.start_walk(1'000'000'000);
  (void)ask(0x1000, 99);
  memo_.start_walk(9'000'000'000);
  (void)ask(0x1000, 99);
  EXPECT_EQ(followed_, 1u);
  memo_.start_walk(12'000'000'000);
  (void)ask(0x1000, 99);
  EXPECT_EQ(followed_, 2u) << "something may be mapped there by now";
}

TEST_F(CodeMemoTest, WithoutTimeOnlyWhatIsKnownIsFound) {
  struct Time final : CodeMemo::Limit {
    bool begin() override { return has_any; }
    void end() override { ++used; }
    bool has_any = true;
    unsigned used = 0;
  } time;
  memo_.set_limit(time);
  (void)ask(0x1000, 32);
  time.has_any = false;
  memo_.start_walk(1);
  EXPECT_TRUE(ask(0x1000, 32).found);
  EXPECT_FALSE(memo_.was_refused());
  EXPECT_FALSE(ask(0x2000, 32).found);
  EXPECT_TRUE(memo_.was_refused());
  EXPECT_EQ(followed_, 1u);
  time.has_any = true;
  memo_.start_walk(2);
  EXPECT_TRUE(ask(0x2000, 32).found) << "that there was no time is not kept";
  EXPECT_FALSE(memo_.was_refused());
  EXPECT_EQ(time.used, 2u);
}

TEST_F(CodeMemoTest, WhatIsUsedStaysWhereThereIsTooMuch) {
  for (std::uint64_t pc = 0; pc < 2 * CodeMemo::kMaxEntries; ++pc) {
    (void)ask(0x10000 + pc, 32);
    if (pc % 1000 == 0) (void)ask(0x1000, 32);
  }
  const unsigned before = followed_;
  (void)ask(0x1000, 32);
  EXPECT_EQ(followed_, before);
  (void)ask(0x10000, 32);
  EXPECT_EQ(followed_, before + 1) << "the longest unused has gone";
}

// This program's own instructions, under stacks that answer at random.
TEST(CodeMemo, SaysWhatFollowingTheCodeSays) {
  const auto end = reinterpret_cast<std::uint64_t>(&etext);
  const auto first = reinterpret_cast<std::uint64_t>(&row_at);
  const std::uint64_t begin = first - 0x2000, size = std::min<std::uint64_t>(end - begin, 0x10000);
  const auto read = [&](std::uint64_t address, void* to, std::size_t count) {
    if (address < begin || address - begin > size || count > size - (address - begin)) return false;
    std::memcpy(to, reinterpret_cast<const void*>(address), count);
    return true;
  };
  const auto kind = [&](std::uint64_t address) { return address - begin < size ? CodeKind::kFile : CodeKind::kNoCode; };
  flow::SynthesisScratch* scratch = flow::make_scratch();
  CodeMemo memo;
  unsigned found = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::uint64_t at = 0; at < 600; ++at) {
      const CodeAddress pc = CodeAddress::instruction(first + at);
      const auto plausible = [&](const FrameRow& row) {
        const std::uint64_t digest = CodeMemo::digest_of(row) ^ seed * 0x9e37'79b9'7f4a'7c15;
        return (digest * 0xff51'afd7'ed55'8ccd >> 60) < 8;
      };
      const auto has_caller = [&](const FrameRow& row) { return ((CodeMemo::digest_of(row) ^ seed) & 1) != 0; };
      const CodeSource source{kOwnArchitecture, read, kind, plausible, flow::detail::kNoStart, 0, has_caller};
      const auto direct = flow::synthesize(source, pc, *scratch);
      for (unsigned twice = 0; twice < 2; ++twice) {
        const CodeAnswer kept = memo.ask(key_of(pc.value()), pc.value(), false, source, [&](const CodeSource& from) {
          const auto synthesis = flow::synthesize(from, pc, *scratch);
          CodeAnswer answer;
          answer.found = synthesis.has_value();
          if (synthesis) answer.synthesis = *synthesis;
          return answer;
        });
        ASSERT_EQ(kept.found, direct.has_value()) << at;
        if (!kept.found) continue;
        ++found;
        EXPECT_EQ(kept.synthesis.certainty, direct->certainty) << at;
        EXPECT_EQ(kept.synthesis.start, direct->start) << at;
        EXPECT_EQ(kept.synthesis.by_jump, direct->by_jump) << at;
        EXPECT_EQ(kept.synthesis.addresses_frame, direct->addresses_frame) << at;
        EXPECT_EQ(kept.synthesis.behind_padding, direct->behind_padding) << at;
        EXPECT_EQ(kept.synthesis.keeps_frame_record, direct->keeps_frame_record) << at;
        EXPECT_EQ(CodeMemo::digest_of(kept.synthesis.row), CodeMemo::digest_of(direct->row)) << at;
        EXPECT_EQ(kept.synthesis.row.begin, direct->row.begin) << at;
      }
    }
  }
  flow::free_scratch(scratch);
  EXPECT_GT(found, 500u) << "of 4,800";
  EXPECT_GE(memo.kept(), memo.followed()) << "half of the questions are repeats";
}

}  // namespace
}  // namespace windlass::walk
