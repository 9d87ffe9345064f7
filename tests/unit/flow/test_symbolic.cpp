// The parts that following code stands on: symbolic states, the list of paths still to be followed, and immediates.
#include "flow/symbolic.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "flow/aarch64_encoding.h"
#include "flow/explorer.h"
#include "flow/x86_64.h"

namespace windlass::flow {
namespace {

using State = SymbolicState<X86_64::kSlots>;

TEST(SymbolicState, BeginsAnewWithoutAnythingFromBefore) {
  State state;
  state.start();
  for (int i = 0; !state.forgot(); ++i) {
    ASSERT_LT(i, 10'000) << "stores without end";
    state.store(Value::initial(7, 64 * i), 8, Value::constant(1));
  }
  const std::uint8_t symbol = state.next_symbol();
  (void)state.fresh();
  state[3] = Value::constant(5);
  state.start();
  EXPECT_FALSE(state.forgot());
  EXPECT_EQ(state.store_count(), 0u);
  EXPECT_EQ(state.next_symbol(), symbol);
  EXPECT_TRUE(state[3].is_initial(3));
  EXPECT_EQ(state.load(Value::initial(7), 8), Value::initial(7).loaded());
}

TEST(SymbolicState, HandsOutEveryStoreOfEightBytes) {
  State state;
  state.start();
  state.store(Value::initial(7, -8), 8, Value::initial(6));
  state.store(Value::initial(7, -12), 4, Value::constant(1));
  state.store(Value::initial(7, -24), 8, Value::initial(3));
  std::vector<std::int64_t> places;
  state.for_each_store([&](const Value& address, const Value&) { places.push_back(address.addend); });
  EXPECT_EQ(places, (std::vector<std::int64_t>{-8, -24}));
}

// With the room full, a path behind fewer calls takes the place of one behind the most, and no other does.
TEST(PathList, KeepsThePathsBehindTheFewestCalls) {
  const auto list = std::make_unique<PathList<X86_64>>();
  const auto visited = std::make_unique<VisitedSet>();
  const auto path = std::make_unique<Path<X86_64>>();
  list->start();
  visited->start();
  const auto add = [&](std::uint64_t pc, std::uint16_t calls) {
    path->start(pc);
    path->calls = calls;
    list->add(*path, *visited);
  };
  for (unsigned i = 0; i < PathList<X86_64>::kMost; ++i) add(0x1000 + i, i == 5 ? 9 : 3);
  EXPECT_FALSE(list->has_given_up());
  add(0x2000, 9);  // no better than the worst
  add(0x3000, 2);
  EXPECT_TRUE(list->has_given_up());
  std::vector<std::uint64_t> taken;
  while (!list->empty()) {
    list->take(*path);
    taken.push_back(path->pc);
  }
  ASSERT_EQ(taken.size(), PathList<X86_64>::kMost);
  EXPECT_EQ(taken.front(), 0x3000u) << "the fewest calls first";
  for (const std::uint64_t pc : taken) {
    EXPECT_NE(pc, 0x2000u);
    EXPECT_NE(pc, 0x1005u) << "behind the most calls";
  }
}

// As GNU's assembler encodes them.
TEST(A64, ImmediatesOfLogicalInstructions) {
  const struct {
    std::uint32_t word;
    std::uint64_t immediate;
  } cases[] = {{0x92401c41, 0xff},
               {0x927be841, 0xffff'ffff'ffff'ffe0},
               {0xb200f041, 0x5555'5555'5555'5555},
               {0xb20c9c41, 0x0ff0'0ff0'0ff0'0ff0},
               {0x121c6c41, 0xffff'fff0},
               {0x32010441, 0x8000'0001},
               {0xd2410041, 0x8000'0000'0000'0000},
               {0x1200cc41, 0x0f0f'0f0f},
               {0xd2030841, 0xe000'0000'e000'0000}};
  for (const auto& one : cases) EXPECT_EQ(a64::logical_immediate({one.word}), one.immediate) << std::hex << one.word;
}

}  // namespace
}  // namespace windlass::flow
