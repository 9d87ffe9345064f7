// The shared unwinder (bpf/windlass_step.h) as user code, for frames on another stack or on none: ways from the
// thread's pointer, stacks that have moved, frames that are held in objects.
#include <gtest/gtest.h>

#include "fake_target.h"

namespace windlass {
namespace {

using testing::FakeTarget;
using testing::rule_of;
constexpr std::uint64_t kStack = FakeTarget::kStack;
constexpr std::uint64_t kCode = FakeTarget::kCode;

int apply(FakeTarget& target, wl_cursor& cursor, const wl_rule& rule) { return target.apply(cursor, rule, WL_NO_XREG); }

// Erlang's processes: what the thread keeps, or an older one that rbp has below it.
TEST(OtherStacks, StackOfTheCodeThatAThreadRuns) {
  constexpr std::uint64_t kThread = kStack + 0x1000, kScheduler = kStack + 0x2000, kProcess = kStack + 0x3000;
  constexpr std::uint64_t kOther = kStack + 0x40000;
  FakeTarget target;
  wl_unwind& u = target.scratch->unwind;
  target.write(kThread + 0x10, {kThread});
  target.write(kThread + 0x358, {kScheduler});
  target.write(kScheduler + 0xa8, {kProcess});
  target.write(kProcess + 0x58, {kOther});
  u.thread_pointer = kThread;
  u.other_stack = {.first = 0x10, .second = 0x358 / 8, .sp = 0x58 / 8, .keeper = 0xa8 / 8, .end = 6, .there = 1};
  const auto from = [&](std::uint64_t fp) {
    u.cursor = FakeTarget::cursor(kCode, kStack, fp);
    return wl_other_sp(&u, 7);
  };
  EXPECT_EQ(from(kOther + 8), kOther);
  EXPECT_EQ(u.words[WL_WAY_SP].address, kProcess + 0x58);
  EXPECT_EQ(u.words[WL_WAY_SP].value, kOther);
  EXPECT_EQ(u.kept_end, ~0ULL) << "it is not known";
  target.write(kProcess + 0x88, {kOther + 0x100});
  EXPECT_EQ(from(kOther + 8), kOther);
  EXPECT_EQ(u.kept_sp, kOther);
  EXPECT_EQ(u.kept_end, kOther + 0x100);
  EXPECT_EQ(u.left_at, kStack + WL_SWITCH_ROOM);
  EXPECT_EQ(from(kOther - 0x20), kOther - 0x20);
  EXPECT_EQ(from(kOther - WL_MAX_RAW_PIECE), kOther) << "rbp has something else";
  u.cursor = FakeTarget::cursor(kCode, kStack, kOther - 0x20);
  u.cursor.valid &= ~(1U << WL_FP);
  EXPECT_EQ(wl_other_sp(&u, 7), kOther) << "rbp is not known";
  target.write(kScheduler + 0xa8, {0});
  EXPECT_EQ(from(kOther), 7U) << "no process runs";
  target.write(kScheduler + 0xa8, {1});
  EXPECT_EQ(from(kOther), 7U);
  EXPECT_EQ(u.kept_sp, 0U);
  u.thread_pointer = 0;
  EXPECT_EQ(from(kOther), 7U);
}

// Go's, by the place of m.curg.
wl_way way_with(std::uint16_t curg) {
  wl_way way = WL_GO_WAY_OF_1_14;
  way.keeper = curg / 8;
  return way;
}

// A thread of Go whose program's table is not known yet, by another program's way.
class GoThread : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kThread = kStack + 0x1000, kG0 = kStack + 0x2000, kM = kStack + 0x3000;
  static constexpr std::uint64_t kG = kStack + 0x4000, kHigh = kStack + 0x400, kOther = kStack + 0x40000;

  FakeTarget target;
  wl_unwind& u = target.scratch->unwind;

  GoThread() {
    target.write(kThread - 8, {kG0});
    target.write(kG0, {kStack - 0x1000, kHigh, 0, 0, 0, 0, kM});
    target.write(kM + 0xb8, {kG});
    target.write(kG, {kOther - 0x100, kOther + 0x200, 0, 0, 0, 0, kM, kOther, 0xaaaa});
    u.thread_pointer = kThread;
  }
  std::uint64_t from(std::uint64_t sp) {
    u.cursor = FakeTarget::cursor(kCode, sp, kOther - 8);
    u.way = way_with(0xb8);
    return wl_other_go_sp(&u);
  }
  [[nodiscard]] std::vector<std::uint64_t> loaded() const {
    std::vector<std::uint64_t> addresses;
    for (const wl_word& word : u.words)
      if (word.address != 0) addresses.push_back(word.address);
    return addresses;
  }
};

TEST_F(GoThread, OnItsSystemStackHasTheGoroutinesBesideIt) {
  EXPECT_EQ(from(kStack), kOther);
  EXPECT_EQ(u.kept_sp, kOther);
  EXPECT_EQ(u.kept_end, kOther + 0x200);
  EXPECT_EQ(u.left_at, kHigh + WL_ARGUMENTS);
  EXPECT_EQ(loaded(), (std::vector{kThread - 8, kG0 + 0x30, kM + 0xb8, kG + 0x38, kG + 0x40, kG, kG + 8}));
  EXPECT_EQ(u.words[WL_WAY_PC].value, 0xaaaaU);
}

// The first program of a recording, of any release; with C code in it, by another program's table.
TEST_F(GoThread, HasTheWayOfItsReleaseBeforeAnyTableIsLoaded) {
  const auto by_any = [&](const wl_way& last) {
    u.cursor = FakeTarget::cursor(kCode, kStack, kOther - 8);
    return wl_any_go_sp(&u, &last, 7);
  };
  EXPECT_EQ(by_any({}), kOther);
  EXPECT_EQ(u.words[WL_WAY_KEEPER].address, kM + 0xb8);
  target.write(kM + 0xb8, {kM, kG});  // what another release has there
  EXPECT_EQ(by_any({}), kOther);
  EXPECT_EQ(u.words[WL_WAY_KEEPER].address, kM + 0xc0);
  target.write(kM + 0xb8, {0, 0, kG});
  EXPECT_EQ(by_any({}), 7U);
  EXPECT_EQ(by_any(way_with(0xc8)), kOther);
}

TEST_F(GoThread, OnTheGoroutinesStackHasThatAlone) {
  target.write(kThread - 8, {kG});
  EXPECT_EQ(from(kOther - 0x80), 0U);
  EXPECT_EQ(u.kept_sp, 0U);
  EXPECT_EQ(u.left_at, kOther + 0x200 + WL_ARGUMENTS);
}

TEST_F(GoThread, WithoutAGoroutineSaysSo) {
  target.write(kM + 0xb8, {0});
  EXPECT_EQ(from(kStack), 0U);
  EXPECT_EQ(u.kept_sp, 0U);
  EXPECT_EQ(loaded(), (std::vector{kThread - 8, kG0 + 0x30, kM + 0xb8}));
}

TEST_F(GoThread, IsKnownByTheBoundsOfItsStack) {
  const auto is_another_program = [&](std::uint64_t sp) {
    return from(sp) == 0 && loaded().empty() && u.kept_sp == 0 && u.left_at == ~0ULL;
  };
  EXPECT_TRUE(is_another_program(kHigh + 1));
  EXPECT_TRUE(is_another_program(kStack - 0x1001));
  EXPECT_FALSE(is_another_program(kHigh));
  target.write(kM + 0xb8, {});
  EXPECT_TRUE(is_another_program(kStack));
  u.thread_pointer = 0;
  EXPECT_TRUE(is_another_program(kStack));
}

TEST_F(GoThread, WhoseGoroutineIsNotInItsStackHasNone) {
  target.write(kG, {kOther + 8, kOther + 0x200, 0, 0, 0, 0, kM, kOther, 0xaaaa});
  EXPECT_EQ(from(kStack), 0U);
  EXPECT_EQ(u.kept_sp, 0U);
  EXPECT_EQ(u.left_at, ~0ULL) << "the stack is copied to its end";
}

// PyPy's threads have the bounds of a part of their stack where Go has those of all of it.
TEST_F(GoThread, OfAnotherRuntimeWithBoundsHasItsWholeStackCopied) {
  for (const std::uint64_t m : {std::uint64_t{0}, std::uint64_t{8}, kM}) {
    target.write(kG0, {kStack - 0x10, kStack + 0x10, 0, 0, 0, 0, m});
    target.write(kM + 0xb8, {0});
    EXPECT_EQ(from(kStack), 0U);
    EXPECT_EQ(u.left_at, ~0ULL);
  }
}

// V8 while it leaves optimised code for good: the frame is in an object.
TEST(OtherStacks, FrameThatIsHeldInAnObject) {
  constexpr std::uint64_t kObject = 0x20000, kFrame = 0x30000, kInput = 0x48, kContent = 0x148, kEnd = kStack + 0x40;
  FakeTarget target;
  wl_unwind& u = target.scratch->unwind;
  wl_mapping code{kCode, kCode + 0x100, {}, 1, WL_MAPPING_HELD};
  code.held = {.input = kInput, .content = kContent, .there = 1};
  target.set_mappings({code});
  target.write(kStack, {kEnd - 8, 0, 0, 0, 0, 0, 0, kObject});
  target.write(kObject + kInput, {kFrame});
  target.write(kFrame, {0x60});
  target.write(kFrame + kContent + 0x60 - 0x20, {0x1111, 0x2222, 0, 0});
  const auto read = [&](const wl_cursor& cursor) {
    u.held.there = 0;
    for (wl_word& word : u.words) word.address = 0;
    u.cursor = cursor;
    EXPECT_EQ(target.walk(cursor).size(), 1U);
    EXPECT_EQ(u.end, WL_END_NO_ROW);
    EXPECT_EQ(u.held.there, 1U);
    EXPECT_EQ(u.held.input, kInput);
    EXPECT_EQ(u.held.content, kContent);
    return wl_read_held(&u) == 0;
  };
  const wl_cursor cursor = FakeTarget::cursor(kCode + 8, kStack, kEnd - 0x20);
  EXPECT_TRUE(read(cursor));
  const auto expect = [&](wl_sampled_word i, std::uint64_t address, std::uint64_t value) {
    EXPECT_EQ(u.words[i].address, address) << i;
    EXPECT_EQ(u.words[i].value, value) << i;
  };
  expect(WL_HELD_FRAME, kObject + kInput, kFrame);
  expect(WL_HELD_SIZE, kFrame, 0x60);
  expect(WL_HELD_FP, kFrame + kContent + 0x40, 0x1111);
  expect(WL_HELD_RETURN, kFrame + kContent + 0x48, 0x2222);
  wl_cursor without = cursor;
  without.valid &= ~(1U << WL_X64_RBP);
  EXPECT_FALSE(read(without));
  EXPECT_EQ(u.words[WL_HELD_RETURN].address, 0U);
  target.memory.erase(kFrame);
  EXPECT_FALSE(read(cursor));
  EXPECT_EQ(u.words[WL_HELD_RETURN].address, 0U);
}

// C that Go has called: where on the goroutine's stack the way back is counts from that stack's upper end.
TEST(OtherStacks, CfaOnAStackThatMayHaveMoved) {
  constexpr std::uint64_t kG = kStack + 0x2000, kTop = kStack + 0x4000;
  FakeTarget target;
  target.write(kStack + 40, {0x100, kG});
  target.write(kG + 8, {kTop});
  target.write(kTop - 0x100, {0xaaaa, 2});
  wl_rule rule = rule_of(WL_CFA_MOVABLE, WL_SP, 0);
  rule.owner = 48;
  rule.top = 1;
  rule.x_kind = WL_REG_UNDEFINED;
  rule.last = {.addend = 1, .words = 40 / 8};
  const auto from = FakeTarget::cursor(kCode, kStack, 0x77);
  auto cursor = from;
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xaaaaU);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kTop - 0xf8);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], 0x77U);

  // Below the frame: one switch of stacks.
  constexpr std::uint64_t kHigher = kStack + 0x5000;
  target.write(kHigher + 40, {0x100, kG});
  cursor = FakeTarget::cursor(kCode, kHigher, 0x77);
  EXPECT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kTop - 0xf8);
  EXPECT_EQ(cursor.backward, 1U);
  target.write(kStack + 48, {1});
  EXPECT_EQ(apply(target, cursor = from, rule), WL_END_UNREADABLE_STACK);
}

// Go's system stack: the goroutine's stack pointer is found from the thread's pointer.
TEST(OtherStacks, CfaFromTheThread) {
  constexpr std::uint64_t kThread = kStack + 0x1000, kG = kStack + 0x2000, kM = kStack + 0x3000;
  constexpr std::uint64_t kOther = kStack + 0x4000;
  FakeTarget target;
  target.write(kThread - 8, {kG});
  target.write(kG + 0x30, {kM});
  target.write(kM + 0xb8, {kG});
  target.write(kG + 0x38, {kOther});
  target.write(kOther, {1, 0xaaaa, 2});
  target.scratch->unwind.thread_pointer = kThread;
  wl_rule rule = rule_of(WL_CFA_THREAD, 0, 0);
  rule.way_first = -8;
  rule.way_second = 0x30 / 8;
  rule.way_sp = 0x38 / 8;
  rule.x_kind = WL_REG_UNDEFINED;
  rule.last = {.addend = 2, .words = 0xb8 / 8};
  const auto from = FakeTarget::cursor(kCode, kStack, 0x77);
  auto cursor = from;
  ASSERT_EQ(apply(target, cursor, rule), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xaaaaU);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kOther + 16);
  EXPECT_EQ(cursor.regs[WL_X64_RBP], 0x77U);

  // morestack's: the return address is beside the stack pointer, and not on the stack once that is copied.
  wl_rule saved = rule;
  saved.last.addend = 0;
  saved.ra_kind = WL_REG_BASE;
  saved.ra_offset = 8;
  target.write(kG + 0x40, {0xbbbb});
  cursor = from;
  ASSERT_EQ(apply(target, cursor, saved), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xbbbbU);
  EXPECT_EQ(cursor.regs[WL_X64_RSP], kOther);

  // Behind a frame that has given the thread another goroutine.
  wl_rule gives = rule_of(WL_CFA_REG, WL_SP, 8);
  gives.flags = WL_RULE_LEFT;
  target.write(kStack, {0xcccc});
  cursor = from;
  ASSERT_EQ(apply(target, cursor, gives), WL_CONTINUE);
  EXPECT_EQ(cursor.regs[WL_X64_RIP], 0xccccU);
  EXPECT_EQ(apply(target, cursor, rule), WL_END_COMPLETE);

  target.write(kM + 0xb8, {0});
  cursor = from;
  EXPECT_EQ(apply(target, cursor, rule), WL_END_COMPLETE) << "there is no other stack";
  target.write(kM + 0xb8, {1});
  cursor = from;
  EXPECT_EQ(apply(target, cursor, rule), WL_END_UNREADABLE_STACK);
  target.scratch->unwind.thread_pointer = 0;
  cursor = from;
  EXPECT_EQ(apply(target, cursor, rule), WL_END_REGISTER_LOST);
}

// Windows: the thread's pointer is a word of the TEB, at a fixed place or where a variable says.
TEST_F(GoThread, OfWindowsHasItsPointerInTheTeb) {
  constexpr std::uint64_t kTeb = kStack + 0x10000, kVariable = kCode + 0x8000;
  u.gs_base = kTeb;
  target.write(kTeb + 0x28, {kThread});
  EXPECT_EQ(wl_use_thread_slot(&u, 0x28), 0);
  EXPECT_EQ(u.thread_pointer, kThread);
  EXPECT_EQ(loaded(), (std::vector{kTeb + 0x28}));
  target.write(kVariable, {0x1490});
  target.write(kTeb + 0x1490, {kThread + 8});
  EXPECT_EQ(wl_use_thread_slot(&u, kVariable), 0);
  EXPECT_EQ(u.thread_pointer, kThread + 8);
  EXPECT_EQ(loaded(), (std::vector{kVariable, kTeb + 0x1490}));
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{WL_TEB_BYTES}}) {
    target.write(kVariable, {offset});  // not set yet, or no offset
    EXPECT_EQ(wl_use_thread_slot(&u, kVariable), 1);
    EXPECT_EQ(u.thread_pointer, 0U);
  }
  u.gs_base = 0;
  EXPECT_EQ(wl_use_thread_slot(&u, 0x28), 1);
  EXPECT_EQ(u.thread_pointer, 0U);
}

}  // namespace
}  // namespace windlass
