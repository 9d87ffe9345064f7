// The one loop over instructions, and straight code read one instruction after another.
#include "flow/follow.h"

#include <gtest/gtest.h>

#include <vector>

#include "flow/stack_effect.h"

namespace windlass::flow {
namespace {

// Ways of so many instructions each, followed in turn; it ends at instruction `end` of all.
struct Ways {
  std::vector<unsigned> lengths;
  unsigned end = ~0u;
  unsigned way = 0, at = 0, steps = 0;

  Ended run(std::uint32_t& budget) {
    const auto arrive = [&] { return at < lengths[way] ? Go::kOn : Go::kNextWay; };
    const auto step = [&] {
      ++at;
      return steps++ == end ? Go::kEnd : Go::kOn;
    };
    const auto next_way = [&] {
      at = 0;
      return ++way < lengths.size();
    };
    return follow(budget, arrive, step, next_way);
  }
};

TEST(Follow, TakesAllWays) {
  Ways ways{.lengths = {3, 0, 2}};
  std::uint32_t budget = 100;
  EXPECT_EQ(ways.run(budget), Ended::kByLastWay);
  EXPECT_EQ(ways.steps, 5u);
  EXPECT_EQ(budget, 95u);
}

TEST(Follow, EndsWhereThePolicySays) {
  Ways ways{.lengths = {3, 2}, .end = 1};
  std::uint32_t budget = 100;
  EXPECT_EQ(ways.run(budget), Ended::kByPolicy);
  EXPECT_EQ(ways.steps, 2u);
}

TEST(Follow, ExecutesNoMoreThanTheBudgetOfAllWays) {
  for (const std::uint32_t most : {0u, 1u, 3u, 4u}) {
    Ways ways{.lengths = {3, 2}};
    std::uint32_t budget = most;
    EXPECT_EQ(ways.run(budget), Ended::kByBudget) << most;
    EXPECT_EQ(ways.steps, most);
    EXPECT_EQ(budget, 0u);
  }
  Ways ways{.lengths = {3, 2}};
  std::uint32_t budget = 5;
  EXPECT_EQ(ways.run(budget), Ended::kByLastWay) << "just enough";
}

// push rbp; mov rbp, rsp; pop rbp; ret
constexpr std::uint8_t kCode[] = {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3};

TEST(StraightCode, GivesTheInstructionsThatBeginInThePiece) {
  StraightCode line(ByteView(std::span<const std::uint8_t>(kCode)), 0x1000, 4, 1);
  const auto move = line.next();
  ASSERT_TRUE(move);
  EXPECT_EQ(move->kind, StackEffect::Kind::kNone);
  EXPECT_EQ(line.offset(), 1u);
  EXPECT_EQ(line.end(), 4u);
  EXPECT_FALSE(line.next());
  EXPECT_FALSE(line.failed()) << "the piece ends there";
}

TEST(StraightCode, SaysHowFarTheStackPointerMoves) {
  StraightCode line(ByteView(std::span<const std::uint8_t>(kCode)), 0x1000, sizeof kCode);
  std::vector<std::int64_t> deltas;
  while (const auto effect = line.next()) deltas.push_back(effect->delta);
  EXPECT_EQ(deltas, (std::vector<std::int64_t>{-8, 0, 8, 0}));
  EXPECT_EQ(line.end(), sizeof kCode);
  EXPECT_FALSE(line.failed());
}

TEST(StraightCode, FailsWhereAnInstructionIsCutShort) {
  StraightCode line(ByteView(std::span<const std::uint8_t>(kCode).first(3)), 0x1000, sizeof kCode);
  EXPECT_TRUE(line.next());
  EXPECT_FALSE(line.next());
  EXPECT_TRUE(line.failed());
  EXPECT_EQ(line.end(), 1u);
}

}  // namespace
}  // namespace windlass::flow
