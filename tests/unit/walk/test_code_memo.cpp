// Kept results of following code must equal those of following it, whatever the stacks at hand answer.
#include "walk/code_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "walk/module.h"
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
      return readable_;
    };
    const auto kind = [this](std::uint64_t) { return kind_; };
    const auto plausible = [&](const FrameRow& row) { return row.cfa.offset() == plausible_offset; };
    const CodeSource source{Architecture::kX86_64, read, kind, plausible};
    const auto follow = [&](const CodeSource& from) {
      ++followed_;
      CodeAnswer answer;
      std::uint8_t byte = 0;
      const bool is_read = from.read(pc, &byte, 1);
      EXPECT_EQ(is_read, readable_);
      (void)from.kind(pc);
      if (!is_read) {
        answer.error = {ErrorCode::kUnreadable, "no code", pc, 0};
        return answer;
      }
      for (const std::int32_t offset : {16, 32, 16, 48}) {
        const FrameRow row = row_at(pc, offset + byte);
        if (!from.plausible(row)) continue;
        answer.found = true;
        answer.synthesis.row = row;
        answer.synthesis.certainty = certainty_;
        return answer;
      }
      answer.error = {ErrorCode::kNotFound, "none", pc, 0};
      return answer;
    };
    return memo_.ask(key_of(pc), pc, changes, source, follow);
  }

  CodeMemo memo_;
  std::uint8_t byte_ = 0;
  bool readable_ = true;
  CodeKind kind_ = CodeKind::kFile;
  flow::Certainty certainty_ = flow::Certainty::kGuess;
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

TEST_F(CodeMemoTest, AWayThatWasFoundHoldsWhateverIsMappedLater) {
  for (const auto& [certainty, follows] : {std::pair{flow::Certainty::kLikely, 1U}, {flow::Certainty::kGuess, 2U}}) {
    certainty_ = certainty;
    followed_ = 0;
    kind_ = CodeKind::kNoCode;
    const std::uint64_t pc = 0x1000 + static_cast<std::uint64_t>(certainty);
    memo_.start_walk(1'000'000'000);
    EXPECT_TRUE(ask(pc, 32).found);
    memo_.start_walk(12'000'000'000);
    EXPECT_TRUE(ask(pc, 32).found);
    EXPECT_EQ(followed_, follows);
  }
}

TEST_F(CodeMemoTest, WhatCouldNotBeReadHoldsForAWhile) {
  readable_ = false;
  memo_.start_walk(1'000'000'000);
  EXPECT_FALSE(ask(0x1000, 32).found);
  readable_ = true;  // the process did not answer in time
  memo_.start_walk(9'000'000'000);
  EXPECT_FALSE(ask(0x1000, 32).found);
  EXPECT_EQ(followed_, 1u);
  memo_.start_walk(12'000'000'000);
  EXPECT_TRUE(ask(0x1000, 32).found);
  EXPECT_EQ(followed_, 2u);
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

TEST_F(CodeMemoTest, WhatCannotBeKeptTakesOfTheSameTime) {
  struct Time final : CodeMemo::Limit {
    bool begin() override { return left != 0; }
    void end() override { --left; }
    unsigned left = 2;
  } time;
  unsigned tries = 0;
  const auto follow = [&]() -> Expected<flow::Synthesis> {
    ++tries;
    return flow::Synthesis{};
  };
  EXPECT_TRUE(memo_.follow_unkept(follow)) << "nobody limits it";
  memo_.set_limit(time);
  for (unsigned i = 0; i < 5; ++i) {
    const bool found = static_cast<bool>(memo_.follow_unkept(follow));
    EXPECT_EQ(found, i < 2) << i;
  }
  EXPECT_EQ(tries, 3u);
  EXPECT_EQ(memo_.follow_unkept(follow).error().code, ErrorCode::kLimit);
}

TEST(VainTries, APageWhereNothingWasFoundIsSeldomTried) {
  VainTries vain;
  const auto tries = [&](const CodePlace& at, unsigned times, bool finds) {
    unsigned due = 0;
    for (unsigned i = 0; i < times; ++i) {
      if (!vain.is_due(at)) continue;
      ++due;
      vain.note(at, finds);
    }
    return due;
  };
  const CodePlace place{1, 0x5000}, same_page{1, 0x5fff}, next_page{1, 0x6000}, other_code{2, 0x5000};
  EXPECT_EQ(tries(place, 15, false), 15u);
  EXPECT_EQ(tries(place, 1, true), 1u) << "one that was found: counted anew";
  EXPECT_EQ(tries(place, 16, false), 16u);
  EXPECT_EQ(tries(same_page, 1600, false), 100u) << "one of 16";
  EXPECT_EQ(tries(next_page, 16, false), 16u);
  EXPECT_EQ(tries(other_code, 16, false), 16u);
  EXPECT_EQ(tries(place, 16, true), 1u) << "the sixteenth, which finds something";
  EXPECT_EQ(tries(place, 100, true), 100u) << "it has become of use";
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

// Code that changes: each test follows by reading `size` bytes, and finds what the last of them says.
class ChangingCode : public testing::Test {
 protected:
  // Reads [pc, pc + size) in one piece, or in pieces of a byte.
  CodeAnswer ask(std::uint64_t pc, std::size_t size, bool in_one = true) {
    const auto read = [this](std::uint64_t address, void* to, std::size_t count) {
      if (address < kBegin || address - kBegin > code_.size() || count > code_.size() - (address - kBegin))
        return false;
      std::memcpy(to, code_.data() + (address - kBegin), count);
      return true;
    };
    const auto kind = [](std::uint64_t) { return CodeKind::kGenerated; };
    const auto plausible = [](const FrameRow&) { return true; };
    const CodeSource source{Architecture::kX86_64, read, kind, plausible};
    return memo_.ask(key_of(pc), pc, true, source, [&](const CodeSource& from) {
      ++followed_;
      std::vector<std::uint8_t> bytes(size);
      CodeAnswer answer;
      answer.found = true;
      for (std::size_t at = 0, step = in_one ? size : 1; at < size; at += step)
        answer.found = answer.found && from.read(pc + at, bytes.data() + at, step);
      answer.synthesis.row = row_at(pc, bytes.back());
      return answer;
    });
  }

  static constexpr std::uint64_t kBegin = 0x10000;
  std::vector<std::uint8_t> code_ = std::vector<std::uint8_t>(0x1000, 1);
  CodeMemo memo_;
  unsigned followed_ = 0;
};

TEST_F(ChangingCode, AChangeOfAnyByteThatWasReadIsSeen) {
  for (const bool in_one : {true, false}) {
    std::uint64_t pc = in_one ? kBegin : kBegin + 0x800;
    for (const std::size_t size : {1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 72, 255, 256, 257, 300, 1000}) {
      const auto last = static_cast<std::size_t>(pc - kBegin) + size - 1;
      EXPECT_EQ(ask(pc, size, in_one).synthesis.row.cfa, CfaRule::at(7, 1)) << size;
      const unsigned before = followed_;
      EXPECT_EQ(ask(pc, size, in_one).synthesis.row.cfa, CfaRule::at(7, 1)) << size;
      EXPECT_EQ(followed_, before) << size;
      code_[last] = 2;
      EXPECT_EQ(ask(pc, size, in_one).synthesis.row.cfa, CfaRule::at(7, 2)) << size;
      code_[last] = 1;
      pc += 8;
    }
  }
}

TEST_F(ChangingCode, AWayThroughTooManyPiecesIsNotKept) {
  code_.resize(64 * (CodeReads::kMost + 2), 1);
  for (const std::size_t pieces : {CodeReads::kMost, CodeReads::kMost + 1}) {
    const bool keeps = pieces <= CodeReads::kMost;
    (void)ask(kBegin, 64 * pieces);
    const unsigned before = followed_;
    (void)ask(kBegin, 64 * pieces);
    EXPECT_EQ(followed_, before + (keeps ? 0 : 1)) << pieces;
    code_[0] ^= 3;
  }
}

TEST_F(ChangingCode, AChangeInAPieceThatEndsEarlyIsSeen) {
  code_.resize(code_.size() + 8, 1);
  const std::uint64_t at = kBegin + code_.size() - 8;
  EXPECT_EQ(ask(at, 8).synthesis.row.cfa, CfaRule::at(7, 1));
  code_.back() = 2;
  EXPECT_EQ(ask(at, 8).synthesis.row.cfa, CfaRule::at(7, 2));
}

TEST_F(ChangingCode, CodeThatAppearsOrGoesIsFollowedAgain) {
  const std::uint64_t end = kBegin + code_.size();
  EXPECT_TRUE(ask(end - 8, 8).found);
  EXPECT_FALSE(ask(end, 8).found);
  EXPECT_FALSE(ask(end, 8).found);
  EXPECT_EQ(followed_, 2u) << "that it cannot be read is kept";
  code_.resize(code_.size() + 8);
  EXPECT_TRUE(ask(end, 8).found);
  code_.resize(code_.size() - 16);
  EXPECT_FALSE(ask(end - 8, 8).found);
  EXPECT_FALSE(ask(end, 8).found);
  EXPECT_EQ(followed_, 5u);
}

// Stacks wait for their turn, while the code that they were in may go.
TEST_F(ChangingCode, AStackFromBeforeTheChangeHasTheCodeOfThatTime) {
  const auto offset = [&](std::uint64_t taken, std::uint64_t walked) {
    memo_.start_walk(taken, walked);
    return ask(kBegin, 8).synthesis.row.cfa.offset();
  };
  EXPECT_EQ(offset(10, 100), 1);
  EXPECT_EQ(offset(20, 110), 1);
  code_[7] = 2;
  EXPECT_EQ(offset(30, 120), 1) << "the code was the same at 110";
  EXPECT_EQ(offset(109, 130), 1);
  EXPECT_EQ(followed_, 1u);
  EXPECT_EQ(offset(110, 140), 2) << "it may have changed before that";
  EXPECT_EQ(offset(115, 150), 2);
  EXPECT_EQ(followed_, 2u);
}

TEST_F(ChangingCode, IsComparedOnceForAllFramesOfAStack) {
  memo_.start_walk(10, 100);
  EXPECT_EQ(ask(kBegin, 8).synthesis.row.cfa.offset(), 1);
  code_[7] = 2;
  EXPECT_EQ(ask(kBegin, 8).synthesis.row.cfa.offset(), 1) << "another frame of the stack";
  memo_.start_walk(101, 101);
  EXPECT_EQ(ask(kBegin, 8).synthesis.row.cfa.offset(), 2);
}

TEST_F(ChangingCode, NothingIsKeptBeyondAClear) {
  (void)ask(kBegin, 8);
  memo_.clear();
  (void)ask(kBegin, 8);
  EXPECT_EQ(followed_, 2u);
  EXPECT_EQ(memo_.followed(), 2u);
  EXPECT_EQ(memo_.kept(), 0u);
}

// Stacks that tell rows apart by any part of theirs.
TEST(CodeMemo, RowsThatDifferInAnyPartAreDifferent) {
  static constexpr std::uint8_t kExpression[] = {0x77, 0x08, 0x77, 0x10};
  const ByteView expressions(kExpression, sizeof kExpression);
  std::vector<FrameRow> rows(11, row_at(0x1000, 16));
  rows[1].cfa = CfaRule::at(6, 16);
  rows[2].return_address = RegisterRule::at_cfa(-16);
  rows[3].signal_frame = true;
  rows[4].return_signed = true;
  rows[5].registers.append(6, RegisterRule::at_cfa(-16));
  rows[6].registers.append(6, RegisterRule::at_cfa(-24));
  rows[7].registers.append(3, RegisterRule::at_cfa(-16));
  rows[8].expressions = expressions;
  rows[9].expressions = *expressions.sub(0, 2);
  rows[10].end = 0x1002;
  CodeMemo memo;
  const auto read = [](std::uint64_t, void*, std::size_t) { return false; };
  const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
  unsigned followed = 0;
  const auto is_row = [](const FrameRow& a, const FrameRow& b) {
    const auto is_entry = [](const RegisterEntry& x, const RegisterEntry& y) {
      return x.reg == y.reg && x.rule == y.rule;
    };
    if (!std::equal(a.registers.begin(), a.registers.end(), b.registers.begin(), b.registers.end(), is_entry))
      return false;
    return a.begin == b.begin && a.end == b.end && a.cfa == b.cfa && a.return_address == b.return_address &&
           a.signal_frame == b.signal_frame && a.return_signed == b.return_signed &&
           a.expressions.data() == b.expressions.data() && a.expressions.size() == b.expressions.size();
  };
  for (unsigned twice = 0; twice < 2; ++twice) {
    for (std::size_t wanted = 0; wanted < rows.size(); ++wanted) {
      const auto plausible = [&](const FrameRow& row) { return is_row(row, rows[wanted]); };
      const CodeSource source{Architecture::kX86_64, read, kind, plausible};
      const CodeAnswer found = memo.ask(key_of(0x1000), 0x1000, false, source, [&](const CodeSource& from) {
        ++followed;
        CodeAnswer answer;
        for (std::size_t i = 0; i < rows.size() && !answer.found; ++i)
          if (answer.found = from.plausible(rows[i]); answer.found) answer.synthesis.row = rows[i];
        return answer;
      });
      ASSERT_TRUE(found.found) << wanted;
      EXPECT_TRUE(is_row(found.synthesis.row, rows[wanted])) << wanted;
    }
  }
  EXPECT_EQ(followed, rows.size()) << "the second time all are known";
}

// What is kept of one question is no answer to another one.
TEST(CodeMemo, QuestionsAreToldApart) {
  using Question = CodeMemo::Question;
  std::vector<CodeMemo::Key> keys;
  for (const Question question : {Question::kRow, Question::kWayIn, Question::kContradiction, Question::kReturnRow})
    keys.push_back({.question = question, .at = {1, 0x1000}});
  keys.push_back({.question = Question::kRow, .at = {2, 0x1000}});
  keys.push_back({.question = Question::kRow, .at = {1, 0x1001}});
  keys.push_back({.question = Question::kContradiction, .at = {1, 0x1000}, .detail = 7});
  for (const CodePlace caller : {CodePlace{1, 0x2000}, CodePlace{1, 0x2001}, CodePlace{2, 0x2000}})
    keys.push_back({.question = Question::kCallSite, .at = {1, 0x1000}, .caller = caller});
  const auto read = [](std::uint64_t, void*, std::size_t) { return false; };
  const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
  const auto plausible = [](const FrameRow&) { return true; };
  const CodeSource source{Architecture::kX86_64, read, kind, plausible};
  CodeMemo memo;
  for (unsigned twice = 0; twice < 2; ++twice) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const CodeAnswer answer = memo.ask(keys[i], 0x1000, false, source, [&](const CodeSource&) {
        CodeAnswer made;
        made.found = true;
        made.site = i % 2 == 0 ? flow::CallSite::kNone : flow::CallSite::kLeads;
        made.synthesis.row = row_at(0x1000, static_cast<std::int32_t>(16 + 8 * i));
        return made;
      });
      EXPECT_EQ(answer.synthesis.row.cfa, CfaRule::at(7, static_cast<std::int32_t>(16 + 8 * i))) << i;
      EXPECT_EQ(answer.site, i % 2 == 0 ? flow::CallSite::kNone : flow::CallSite::kLeads) << i;
    }
  }
  EXPECT_EQ(memo.followed(), keys.size());
  EXPECT_EQ(memo.kept(), keys.size());
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
