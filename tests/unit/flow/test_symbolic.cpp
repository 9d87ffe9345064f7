// The parts that following code stands on: symbolic states, the list of paths still to be followed, and immediates.
#include "flow/symbolic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/registers.h"
#include "flow/aarch64.h"
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

// Values that differ by a constant, and the ranges in which what was loaded can be written down: 32 bits of an offset,
// then 16 bits.
TEST(Value, SumsAndLoads) {
  const Value rsp = Value::initial(7, 16);
  EXPECT_EQ(rsp.plus(-24), Value::initial(7, -8));
  EXPECT_EQ(Value::constant(5).plus(-6), Value::constant(~std::uint64_t{0}));
  EXPECT_EQ(Value().plus(8), Value());
  EXPECT_EQ(Value::initial(7, -8).minus(rsp), -24);
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(Value::initial(7, kLowest).minus(Value::initial(7, 1)), std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(rsp.same_base(Value::initial(7, -100)));
  EXPECT_FALSE(rsp.same_base(Value::initial(6, 16)));
  EXPECT_FALSE(rsp.same_base(rsp.loaded()));
  EXPECT_FALSE(Value::constant(1).same_base(Value::constant(2))) << "a constant is no base";
  EXPECT_TRUE(Value::initial(127).is_address() && !Value::initial(127).is_symbol());
  EXPECT_TRUE(Value::initial(128).is_symbol());
  EXPECT_TRUE(Value::initial(7).is_initial(7));
  EXPECT_FALSE(Value::initial(7).is_initial(6));
  EXPECT_FALSE(Value::initial(7, 1).is_initial(7));
  EXPECT_FALSE(Value::initial(7).loaded().is_initial(7));
  for (const std::int64_t offset :
       {std::int64_t{INT32_MIN}, std::int64_t{-8}, std::int64_t{0}, std::int64_t{INT32_MAX}}) {
    const Value loaded = Value::initial(3, offset).loaded();
    EXPECT_EQ(loaded.kind, Value::kMemory);
    EXPECT_EQ(loaded.reg, 3);
    EXPECT_EQ(loaded.slot, offset);
    EXPECT_EQ(loaded.addend, 0);
  }
  EXPECT_FALSE(Value::initial(3, std::int64_t{INT32_MIN} - 1).loaded().known());
  EXPECT_FALSE(Value::initial(3, std::int64_t{INT32_MAX} + 1).loaded().known());
  const Value memory = Value::initial(3, 40).loaded();
  for (const std::int64_t offset : {std::int64_t{INT16_MIN}, std::int64_t{8}, std::int64_t{INT16_MAX}}) {
    const Value twice = memory.plus(offset).loaded();
    EXPECT_EQ(twice.kind, Value::kMemory2);
    EXPECT_EQ(twice.reg, 3);
    EXPECT_EQ(twice.slot, 40);
    EXPECT_EQ(twice.slot2, offset);
    EXPECT_EQ(twice.addend, 0);
    EXPECT_FALSE(twice.loaded().known()) << "three times cannot be written down";
  }
  EXPECT_FALSE(memory.plus(std::int64_t{INT16_MIN} - 1).loaded().known());
  EXPECT_FALSE(memory.plus(std::int64_t{INT16_MAX} + 1).loaded().known());
  EXPECT_FALSE(Value::constant(0x1000).loaded().known());
}

// What a state says of memory, beside a list of all stores without a bound.
TEST(SymbolicState, LoadsAreThoseOfAListOfStores) {
  struct Stored {
    Value address;
    std::int64_t size;
    Value value;
    [[nodiscard]] bool shares_a_byte(const Value& other, std::int64_t bytes) const {
      const std::int64_t begin = address.addend, end = begin + size;
      return address.same_base(other) && other.addend < end && begin < other.addend + bytes;
    }
    [[nodiscard]] bool lies_in(const Value& other, std::int64_t bytes) const {
      return address.same_base(other) && other.addend <= address.addend &&
             address.addend + size <= other.addend + bytes;
    }
  };
  std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed): the same each time
  std::size_t forgotten = 0, full = 0;
  for (int round = 0; round < 400; ++round) {
    State state;
    state.start();
    std::vector<Stored> stores;
    bool lost = false;  // a store found no room, or pushed out one of something unknown
    const std::int64_t places = round % 2 == 0 ? 12 : 60;
    const auto address = [&] {
      const std::int64_t at = (static_cast<std::int64_t>(random()) % places - places / 2) * 4;
      switch (random() % 3) {
        case 0: return Value::initial(7, at);
        case 1: return Value::initial(6, at);
        default: return Value::initial(7, 64).loaded().plus(at);
      }
    };
    constexpr std::int64_t kSizes[] = {1, 2, 4, 8, 8, 8, 16};
    for (int i = 0; i < 60 && !lost; ++i) {
      const Value at = address();
      const std::int64_t size = kSizes[random() % std::size(kSizes)];
      const Value value = random() % 4 != 0 ? Value::constant(random()) : Value();
      state.store(at, static_cast<unsigned>(size), value);
      std::erase_if(stores, [&](const Stored& old) { return old.lies_in(at, size); });
      lost = stores.size() == State::kMaxStores;
      if (lost) break;
      stores.push_back({at, size, size == 8 ? value : Value()});
      ASSERT_EQ(state.store_count(), stores.size());
      ASSERT_FALSE(state.forgot());
      for (int asked = 0; asked < 20; ++asked) {
        const Value from = address();
        const std::int64_t bytes = kSizes[random() % std::size(kSizes)];
        const auto newest = std::find_if(stores.rbegin(), stores.rend(),
                                         [&](const Stored& stored) { return stored.shares_a_byte(from, bytes); });
        Value expected = bytes == 8 ? from.loaded() : Value();
        if (newest != stores.rend())
          expected = bytes == 8 && newest->size == 8 && newest->address == from ? newest->value : Value();
        ASSERT_EQ(state.load(from, static_cast<unsigned>(bytes)), expected) << "round " << round << ", store " << i;
      }
    }
    full += stores.size() == State::kMaxStores ? 1 : 0;
    if (!lost) continue;
    ++forgotten;
    ASSERT_TRUE(state.forgot());
    // The oldest store of something unknown has made room; without one the new store has none.
    const auto unknown = std::ranges::find_if(stores, [](const Stored& old) { return !old.value.known(); });
    std::vector<Value> kept;
    for (auto old = stores.begin(); old != stores.end(); ++old)
      if (old != unknown && old->size == 8) kept.push_back(old->address);
    std::vector<Value> told;
    state.for_each_store([&](const Value& at, const Value&) { told.push_back(at); });
    if (unknown != stores.end() && told.size() > kept.size()) told.pop_back();  // the new one
    ASSERT_EQ(told, kept);
    EXPECT_EQ(state.store_count(), State::kMaxStores);
    const State copy = state;
    State assigned;
    assigned.start();
    assigned = state;
    EXPECT_TRUE(copy.forgot() && assigned.forgot());
    EXPECT_EQ(assigned.store_count(), state.store_count());
  }
  EXPECT_GT(forgotten, 50u);
  EXPECT_GE(full, forgotten);
}

// Where two ways meet only what both say is known.
TEST(SymbolicState, AtAMeetingOnlyWhatBothSayIsKnown) {
  State one;
  one.start();
  State other = one;
  EXPECT_FALSE(one.meet(other)) << "the same";
  other[3] = Value::constant(1);
  EXPECT_TRUE(one.meet(other));
  EXPECT_FALSE(one[3].known());
  EXPECT_FALSE(one.meet(other)) << "it is unknown already";
  EXPECT_TRUE(one[6].is_initial(6));
  one.store(Value::initial(7, -8), 8, Value::initial(6));
  one.store(Value::initial(7, -16), 8, Value::constant(1));
  one.store(Value::initial(7, -24), 8, Value::constant(2));
  other = one;
  EXPECT_FALSE(one.meet(other));
  other.store(Value::initial(7, -16), 8, Value::constant(9));
  EXPECT_TRUE(one.meet(other));
  EXPECT_EQ(one.store_count(), 2u);
  EXPECT_EQ(one.load(Value::initial(7, -8), 8), Value::initial(6));
  EXPECT_EQ(one.load(Value::initial(7, -24), 8), Value::constant(2));
}

TEST(SymbolicState, SymbolsAreHandedOutInTurn) {
  State state;
  state.start();
  for (int i = Value::kFirstSymbol; i <= 255; ++i) {
    ASSERT_EQ(state.next_symbol(), i);
    ASSERT_EQ(state.fresh(), Value::initial(static_cast<unsigned>(i)));
  }
  EXPECT_EQ(state.fresh(), Value::initial(Value::kFirstSymbol)) << "no register of the machine";
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

class PathLists : public testing::Test {
 protected:
  PathLists() {
    list->start();
    visited->start();
  }
  std::vector<std::uint64_t> take_all() {
    std::vector<std::uint64_t> taken;
    while (!list->empty()) {
      list->take(*path);
      taken.push_back(path->pc);
    }
    return taken;
  }

  const std::unique_ptr<PathList<X86_64>> list = std::make_unique<PathList<X86_64>>();
  const std::unique_ptr<VisitedSet> visited = std::make_unique<VisitedSet>();
  const std::unique_ptr<Path<X86_64>> path = std::make_unique<Path<X86_64>>();
};

// With the room full, a path behind fewer calls takes the place of one behind the most, and no other does.
TEST_F(PathLists, KeepsThePathsBehindTheFewestCalls) {
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
  const std::vector<std::uint64_t> taken = take_all();
  ASSERT_EQ(taken.size(), PathList<X86_64>::kMost);
  EXPECT_EQ(taken.front(), 0x3000u) << "the fewest calls first";
  for (const std::uint64_t pc : taken) {
    EXPECT_NE(pc, 0x2000u);
    EXPECT_NE(pc, 0x1005u) << "behind the most calls";
  }
}

// The fewest calls first; of those the latest found.
TEST_F(PathLists, HandsOutTheNearestPathFirst) {
  for (const unsigned calls : {1U, 0U, 2U, 0U, 1U, 2U, 0U}) {
    path->start(0x1000 + path->pc % 0x1000 + 1);
    path->calls = static_cast<std::uint16_t>(calls);
    list->add(*path, *visited);
  }
  for (const auto& [pc, calls] :
       {std::pair{0x1007U, 0U}, {0x1004, 0}, {0x1002, 0}, {0x1005, 1}, {0x1001, 1}, {0x1006, 2}, {0x1003, 2}}) {
    ASSERT_FALSE(list->empty());
    EXPECT_EQ(list->fewest_calls(), calls);
    list->take(*path);
    EXPECT_EQ(path->pc, pc);
    EXPECT_EQ(path->calls, calls);
  }
  EXPECT_TRUE(list->empty());
  list->add(*path, *visited);
  list->start();
  EXPECT_TRUE(list->empty());
}

// With the room full, paths to where another one has been are dropped first. Behind a call that may be another way.
TEST_F(PathLists, DropsWhatAnotherPathHasPassed) {
  for (unsigned i = 0; i < PathList<X86_64>::kMost; ++i) {
    path->start(0x1000 + i);
    path->after_call = i == 4;
    list->add(*path, *visited);
  }
  for (const std::uint64_t pc : {0x1000, 0x1003, 0x1004, 0x1017}) EXPECT_TRUE(visited->insert(pc));
  path->start(0x2000);
  list->add(*path, *visited);
  EXPECT_FALSE(list->has_given_up()) << "there was room";
  const std::vector<std::uint64_t> taken = take_all();
  std::vector<std::uint64_t> expected{0x2000};
  for (std::uint64_t pc = 0x1000 + PathList<X86_64>::kMost; pc-- > 0x1000;)
    if (pc != 0x1000 && pc != 0x1003 && pc != 0x1017) expected.push_back(pc);
  EXPECT_EQ(taken, expected);
}

TEST(VisitedSet, HoldsWhatIsNewUpToItsBound) {
  const auto visited = std::make_unique<VisitedSet>();
  for (int round = 0; round < 3; ++round) {
    visited->start();
    for (std::uint64_t i = 0; i < VisitedSet::kMost; ++i) {
      ASSERT_FALSE(visited->full()) << i;
      ASSERT_FALSE(visited->contains(0x1000 + 3 * i)) << i;
      ASSERT_TRUE(visited->insert(0x1000 + 3 * i)) << i;
      ASSERT_FALSE(visited->insert(0x1000 + 3 * i)) << i;
    }
    EXPECT_TRUE(visited->full());
    EXPECT_FALSE(visited->insert(0x1001));
    EXPECT_FALSE(visited->contains(0x1001));
    EXPECT_TRUE(visited->contains(0x1000));
    EXPECT_TRUE(visited->contains(0x1000 + 3 * (VisitedSet::kMost - 1)));
  }
}

// Memory of 64 bytes at 0x1000, whose bytes are their offsets, one with its highest bit set, and a pointer. rbx =
// 0x1008.
class PresentValues : public testing::Test {
 protected:
  static std::uint8_t byte_at(std::uint64_t offset) {
    return static_cast<std::uint8_t>(offset == 0x13 ? 0x80 | offset : offset);
  }
  template <typename Use>
  static auto with_source(Use&& use) {
    const auto read = [](std::uint64_t address, void* to, std::size_t size) {
      if (address < 0x1000 || address + size > 0x1040) return false;
      for (std::size_t i = 0; i < size; ++i) static_cast<std::uint8_t*>(to)[i] = byte_at(address - 0x1000 + i);
      if (address == kPointerAt) std::memcpy(to, &kPointer, size);
      return true;
    };
    const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
    const auto plausible = [](const FrameRow&) { return true; };
    const auto value = [](RegisterNumber reg, std::uint64_t& to) {
      to = 0x1008;
      return reg == x86_64::kRbx;
    };
    CodeSource source{Architecture::kX86_64, read, kind, plausible};
    source.register_value = value;
    return use(source);
  }
  static std::optional<std::uint64_t> target(unsigned shift, int size, int offset, unsigned index) {
    Value targets = Value::constant(kTable);
    targets.kind = Value::kTableTarget;
    targets.reg = static_cast<std::uint8_t>(shift);
    targets.slot2 = static_cast<std::int16_t>(size);
    targets.slot = offset;
    return with_source([&](const CodeSource& source) { return table_target(targets, index, source); });
  }
  static std::optional<std::uint64_t> now(const Value& value) {
    return with_source([&](const CodeSource& source) { return present_value(value, source); });
  }
  static constexpr std::uint64_t kTable = 0x1010, kPointerAt = 0x1018, kPointer = 0x1020;
};

TEST_F(PresentValues, EntriesOfAJumpTable) {
  EXPECT_EQ(target(0, 1, 0, 2), kTable + 0x12);
  EXPECT_EQ(target(0, 1, 0, 3), kTable + 0x93) << "a byte without a sign";
  EXPECT_EQ(target(0, -1, 0, 3), kTable - 0x6d) << "with a sign";
  EXPECT_EQ(target(2, -1, 0, 3), kTable - 0x6d * 4) << "in instructions";
  EXPECT_EQ(target(0, -1, 0, 2), kTable + 0x12);
  EXPECT_EQ(target(2, 1, 0x40, 2), 0x1050U + 0x12 * 4) << "from another place than the table";
  EXPECT_EQ(target(0, 1, -0x10, 2), 0x1000U + 0x12);
  EXPECT_EQ(target(0, 2, 0, 0), kTable + 0x1110);
  EXPECT_EQ(target(0, -2, 0, 1), kTable + 0x9312 - 0x10000);
  EXPECT_EQ(target(0, 4, 0, 0), kTable + 0x93121110);
  EXPECT_EQ(target(0, -4, 0, 0), kTable + 0x93121110 - 0x1'0000'0000);
  EXPECT_EQ(target(1, 8, 4, 0), 0x17161514'93121110U) << "the address itself";
  EXPECT_EQ(target(0, 8, 0, 5), 0x3f3e3d3c'3b3a3938U);
  EXPECT_FALSE(target(0, 8, 0, 6)) << "no memory";
  EXPECT_FALSE(target(0, 9, 0, 0)) << "no such entries";
}

TEST_F(PresentValues, OfRegistersAndMemory) {
  EXPECT_EQ(now(Value::initial(x86_64::kRbx, 5)), 0x100dU);
  EXPECT_EQ(now(Value::initial(x86_64::kRbx, 0x10).loaded().plus(3)), 0x1023U);
  EXPECT_EQ(now(Value::initial(x86_64::kRbx, 0x10).loaded().plus(8).loaded().plus(-1)), 0x2f2e2d2c'2b2a2927U);
  EXPECT_FALSE(now(Value::initial(x86_64::kRbp))) << "a register that is not known";
  EXPECT_FALSE(now(Value::initial(x86_64::kRbx, 0x100).loaded())) << "no memory";
  EXPECT_FALSE(now(Value::initial(x86_64::kRbx, 0x10).loaded().plus(0x100).loaded())) << "behind a pointer";
  EXPECT_FALSE(now(Value::initial(Value::kFirstSymbol)));
  EXPECT_FALSE(now(Value::constant(0x1008)));
  EXPECT_FALSE(now(Value()));
}

// x0 behind one instruction (Arm Architecture Reference Manual, C6.2), with x1 = 0x100 and x2 = 3; 0: not known.
TEST(A64, SumsAndMovesOfRegisters) {
  const auto x0_behind = [](std::uint32_t word) {
    const auto read = [word](std::uint64_t address, void* to, std::size_t size) {
      if (address < 0x1000 || address + size > 0x1004) return false;
      std::memcpy(to, reinterpret_cast<const char*>(&word) + (address - 0x1000), size);
      return true;
    };
    const auto kind = [](std::uint64_t) { return CodeKind::kFile; };
    const auto plausible = [](const FrameRow&) { return true; };
    const CodeSource source{Architecture::kAArch64, read, kind, plausible};
    const auto code = std::make_unique<CodeReader>();
    const auto path = std::make_unique<Path<AArch64>>();
    code->start(source);
    path->start(0x1000);
    path->state[1] = Value::constant(0x100);
    path->state[2] = Value::constant(3);
    AArch64 machine;
    EXPECT_EQ(machine.step(*code, *path).kind, Flow::kNext);
    const Value x0 = path->state[0];
    return x0.is_constant() ? x0.addend : 0;
  };
  EXPECT_EQ(x0_behind(0x8b020020), 0x103) << "add x0, x1, x2";
  EXPECT_EQ(x0_behind(0x8b020820), 0x10c) << "add x0, x1, x2, lsl 2";
  EXPECT_EQ(x0_behind(0x8b420420), 0) << "add x0, x1, x2, lsr 1";
  EXPECT_EQ(x0_behind(0x8b820420), 0) << "add x0, x1, x2, asr 1";
  EXPECT_EQ(x0_behind(0xcb020020), 0xfd) << "sub x0, x1, x2";
  EXPECT_EQ(x0_behind(0xaa0203e0), 3) << "mov x0, x2";
  EXPECT_EQ(x0_behind(0xaa0207e0), 0) << "orr x0, xzr, x2, lsl 1";
  EXPECT_EQ(x0_behind(0xaa4203e0), 0) << "orr x0, xzr, x2, lsr 0";
  EXPECT_EQ(x0_behind(0xaa2203e0), 0) << "mvn x0, x2";
  EXPECT_EQ(x0_behind(0xaa020020), 0) << "orr x0, x1, x2";
}

// ldapur and its like are of any register; what copies memory has another encoding.
TEST(A64, LoadsWithOrderAndAnUnscaledOffset) {
  for (std::uint32_t reg = 0; reg < 32; ++reg) {
    EXPECT_TRUE(a64::Word{0xd9400040 | reg}.is_unscaled_ordered()) << "ldapur x" << reg << ", [x2]";
    EXPECT_TRUE(a64::Word{0xd9000040 | reg}.is_unscaled_ordered()) << "stlur x" << reg << ", [x2]";
    EXPECT_FALSE(a64::Word{0x19000440 | reg}.is_unscaled_ordered()) << "cpyfp";
    EXPECT_FALSE(a64::Word{0xf8400040 | reg}.is_unscaled_ordered()) << "ldur x" << reg << ", [x2]";
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
