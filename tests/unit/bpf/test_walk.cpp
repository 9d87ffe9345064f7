// The shared unwinder's walks (bpf/windlass_walk.h) as user code: through modules' tables and a code manager's, with
// the memo as the walks before have left it.
#include <gtest/gtest.h>

#include <optional>

#include "fake_target.h"
#include "lookup/table/builder.h"
#include "runtimes/manager/read.h"
#include "support/managed_rows.h"
#include "windlass/jit/code_manager.h"

namespace windlass {
namespace {

using testing::FakeTarget;
using testing::rule_of;
constexpr std::uint64_t kStack = FakeTarget::kStack;
constexpr std::uint64_t kCode = FakeTarget::kCode;

// A module of 4 KiB whose code has one rule, for the mapping at kCode.
void place(FakeTarget& target, unsigned module, const wl_rule& rule, std::uint32_t x_reg = WL_NO_XREG) {
  table::TableBuilder builder;
  if (x_reg != WL_NO_XREG) builder.set_x_reg(static_cast<std::uint8_t>(x_reg));
  builder.begin_function(0, 0x1000);
  builder.row(0, rule);
  builder.end_function();
  const auto table = builder.finish();
  target.modules[module] = table::load_table(*table, *target.arena)->module;
}
const wl_mapping kFirstModule{kCode, kCode + 0x1000, kCode, 1, WL_MAPPING_FILE};

TEST(Walk, EndsAtTheFrameLimit) {
  FakeTarget target;
  place(target, 1, rule_of(WL_CFA_REG, 7, 8));
  target.set_mappings({kFirstModule});
  for (const bool remembered : {false, true}) {
    target.write(kStack, std::vector<std::uint64_t>(200, kCode + 0x100));
    EXPECT_EQ(target.walk(FakeTarget::cursor(kCode, kStack, 0)).size(), 64U) << remembered;
    EXPECT_EQ(target.scratch->unwind.end, WL_END_DEPTH);
  }
}

// All steps use the memo, plain rule or not, except for the first one, the one behind it and the last one.
TEST(Walk, HitsOfTheMemoAreCounted) {
  wl_rule loaded = rule_of(WL_CFA_MEM, 7, 0);  // [sp] is the CFA, and the return address below that
  for (const bool plain : {true, false}) {
    FakeTarget target;
    place(target, 1, plain ? rule_of(WL_CFA_REG, 7, 16) : loaded);
    target.set_mappings({kFirstModule});
    std::vector<std::uint64_t> words;
    for (unsigned i = 0; i < 9; ++i) words.insert(words.end(), {kStack + i * 16 + 16, kCode + 0x100});
    words.insert(words.end(), {kStack + 10 * 16, 0});
    target.write(kStack, words);
    const auto start = FakeTarget::cursor(kCode, kStack, 0);
    EXPECT_EQ(target.walk(start).size(), 10U);
    EXPECT_EQ(target.scratch->unwind.end, WL_END_COMPLETE);
    EXPECT_EQ(target.scratch->unwind.memo_hits, plain ? 7U : 8U) << plain;
  }
}

// A function of the program that calls on another stack, as libwindlass_alloc's, is left by a plain rule. A raw sample
// needs both stacks, whoever knows the rule.
TEST(Walk, AnotherStackIsNotedByWhatTheMemoKnows) {
  wl_rule by_fp = rule_of(WL_CFA_REG, WL_FP, 16);
  by_fp.fp_kind = WL_REG_CFA;
  by_fp.fp_offset = -16;
  for (const std::uint64_t distance :
       {std::uint64_t{WL_MAX_RAW_PIECE} - 24, std::uint64_t{WL_MAX_RAW_PIECE} - 16, -std::uint64_t{0x100}}) {
    FakeTarget target;
    place(target, 1, by_fp);
    target.set_mappings({kFirstModule});
    const std::uint64_t other = kStack + distance;
    target.write(other, {other + 32, kCode + 0x200, 0, 0, 0, 0});
    for (const bool remembered : {false, true}) {
      ASSERT_EQ(target.walk(FakeTarget::cursor(kCode, kStack, other)).size(), 2U) << distance;
      EXPECT_EQ(target.scratch->unwind.end, WL_END_COMPLETE);
      const bool is_near = distance == WL_MAX_RAW_PIECE - 24;
      EXPECT_EQ(target.scratch->unwind.next_stack, is_near ? 0 : other + 16) << distance << remembered;
      target.scratch->unwind.next_stack = 0;
    }
  }
}

// The memo's rule says which register the module tracks, in full and as a plain one.
TEST(Walk, TheExtraRegisterIsKeptByWhatTheMemoKnows) {
  wl_rule by_extra = rule_of(WL_CFA_REG, 3, 16);  // CFA = rbx + 16
  wl_rule plain = rule_of(WL_CFA_REG, 7, 16);
  for (const wl_rule& rule : {plain, by_extra}) {
    FakeTarget target;
    place(target, 1, rule, 3);
    target.set_mappings({kFirstModule});
    target.write(kStack, {1, kCode + 0x100});
    auto start = FakeTarget::cursor(kCode, kStack, 0);
    start.regs[3] = kStack;
    for (const bool remembered : {false, true}) {
      auto cursor = start;
      ASSERT_EQ(target.step(cursor), WL_CONTINUE);
      EXPECT_TRUE(WL_VALID(&cursor, 3)) << remembered;
      EXPECT_EQ(cursor.regs[3], kStack);
    }
    int hit = 0;
    const wl_memo_entry* entry = wl_memo_find(target.memo.get(), target.scratch->unwind.space, kCode, 1, &hit);
    EXPECT_TRUE(hit);
    EXPECT_EQ(wl_memo_xreg(entry->value), 3U);
  }
}

// Functions of a module whose tracked register is rbx: one saves rbx, the frame of another one is reached by it.
class ExtraRegister : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSaves = kCode + 0x100, kByExtra = kCode + 0x10100, kOutermost = kCode + 0x20100;

  ExtraRegister() {
    wl_rule saves = rule_of(WL_CFA_REG, 7, 24), outermost = rule_of(WL_CFA_REG, 7, 8);
    saves.x_kind = WL_REG_CFA;
    saves.x_offset = -16;
    outermost.ra_kind = WL_REG_UNDEFINED;
    const wl_rule rules[] = {saves, rule_of(WL_CFA_REG, 3, 16), outermost};
    std::vector<wl_mapping> mappings;
    for (unsigned i = 0; i < 3; ++i) {
      place(target, i, rules[i], 3);
      const std::uint64_t begin = kCode + i * 0x10000ULL;
      mappings.push_back({begin, begin + 0x1000, begin, i, WL_MAPPING_FILE});
    }
    target.set_mappings(mappings);
  }
  void expect(const std::vector<std::uint64_t>& frames, std::uint32_t end) {
    EXPECT_EQ(target.walk(FakeTarget::cursor(kSaves, kStack, 0)), frames);
    EXPECT_EQ(target.scratch->unwind.end, end);
  }

  FakeTarget target;
};

// The first walk that needs the register goes to the agent, and all others are finished here. Other threads find the
// rules that this thread has left in the memo.
TEST_F(ExtraRegister, IsKeptForThreadsThatNeedIt) {
  target.write(kStack, {1, kStack + 24, kByExtra, 2, kOutermost});
  const std::vector<std::uint64_t> lost = {kSaves | WL_FRAME_EXACT, kByExtra};
  const std::vector<std::uint64_t> whole = {kSaves | WL_FRAME_EXACT, kByExtra, kOutermost};
  target.scratch->event.head.tid = 7;
  expect(lost, WL_END_REGISTER_LOST);
  EXPECT_TRUE(target.trail.keeps_x);
  for (int i = 0; i < 4; ++i) expect(whole, WL_END_COMPLETE);
  EXPECT_TRUE(target.trail.keeps_x);
  target.scratch->event.head.tid = 8;
  for (int i = 0; i < 4; ++i) expect(whole, WL_END_COMPLETE);
  EXPECT_FALSE(target.trail.keeps_x);
  *target.memo = {};
  expect(lost, WL_END_REGISTER_LOST);
}

// Saving the register makes no frame dearer: the memo has the rule, and the trail the step.
TEST_F(ExtraRegister, MayBeSavedByPlainFrames) {
  std::vector<std::uint64_t> words, frames = {kSaves | WL_FRAME_EXACT};
  for (int i = 0; i < 12; ++i) words.insert(words.end(), {1, 2, i < 11 ? kSaves : kOutermost});
  for (std::size_t i = 2; i < words.size(); i += 3) frames.push_back(words[i]);
  target.write(kStack, words);
  expect(frames, WL_END_COMPLETE);
  EXPECT_GE(target.scratch->unwind.memo_hits, 9U);
  expect(frames, WL_END_COMPLETE);
  expect(frames, WL_END_COMPLETE);
  EXPECT_EQ(target.scratch->trail.followed, 12U);
  EXPECT_FALSE(target.trail.keeps_x);
}

// A function's code replaced by another's, by generated code, and by nothing: the memo still holds the rule of the
// first for these very addresses.
TEST(Memo, ReplacedCodeIsNeverWalkedByItsOldRule) {
  constexpr std::uint64_t kFirst = 0x101, kSecond = 0x102, kFar = 0x9999;
  FakeTarget target;
  place(target, 1, rule_of(WL_CFA_REG, 7, 16));
  place(target, 2, rule_of(WL_CFA_REG, 7, 32));
  const std::vector<wl_mapping> first{kFirstModule};
  const std::vector<wl_mapping> second{{kCode, kCode + 0x1000, kCode, 2, WL_MAPPING_FILE}};
  const std::vector<wl_mapping> generated{{kCode, kCode + 0x1000, kCode, 2, WL_MAPPING_GENERATED}};
  // By the first rule a frame is 2 words, by the second 4.
  target.write(kStack, {kFar, kCode + kFirst, kFar, kCode + kSecond, kFar, 0, kFar, 0, kFar, 0});
  const auto frames = [&](std::uint64_t frame) { return kCode + frame; };
  const wl_cursor start = FakeTarget::cursor(kCode + 0x80, kStack, 0);
  const std::vector<std::uint64_t> by_first{(kCode + 0x80) | WL_FRAME_EXACT, frames(kFirst), frames(kSecond)};
  const std::vector<std::uint64_t> by_second{(kCode + 0x80) | WL_FRAME_EXACT, frames(kSecond)};

  target.set_mappings(first);
  EXPECT_EQ(target.walk(start), by_first);
  EXPECT_EQ(target.walk(start), by_first);
  EXPECT_GT(target.scratch->unwind.memo_hits, 0U);
  target.publish(second);
  EXPECT_EQ(target.walk(start), by_second);
  EXPECT_EQ(target.walk(start), by_second);
  target.publish(generated);
  EXPECT_EQ(target.walk(start).size(), 1U);
  EXPECT_EQ(target.scratch->unwind.memo_hits, 0U);
  target.publish(first);
  EXPECT_EQ(target.walk(start), by_first);
  // Generated code leaves nothing to be found: replaced by itself, nobody says so.
  *target.memo = {};
  target.publish(generated);
  (void)target.walk(start);
  for (const wl_memo_entry& entry : target.memo->entries) ASSERT_EQ(entry.tag, 0U);
  target.publish({});
  EXPECT_EQ(target.walk(start).size(), 1U);
  EXPECT_EQ(target.scratch->unwind.end, WL_END_NO_MAPPING);
}

// ---- code of a code manager -----------------------------------------------------------------------------------------

// Three of its functions: two that return by their rows, the second of which is the outermost one's callee.
class ManagedCode : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTable = 0x12340000, kFirst = kCode + 0x80, kSecond = kCode + 0x400,
                                 kOutermost = kCode + 0xf00, kOther = kCode + 0x900;

  void SetUp() override {
    auto made = CodeManager::create(kCode, kCode + 0x1000,
                                    {.functions = 16, .shape_bytes = 4096, .name_bytes = 4096, .past = 16});
    ASSERT_TRUE(made);
    manager.emplace(std::move(*made));
    FrameRow outermost = test::managed_row(0, 0x40, 8);
    outermost.return_address = RegisterRule::undefined();
    add(kFirst, {test::managed_row(0, 1, 8), test::managed_row(1, 0x40, 32)});
    add(kSecond, {test::managed_row(0, 4, 8), test::managed_row(4, 0x40, 24)});
    add(kOutermost, {outermost});
    add(kOther, {});
    target.write(kStack, {0, 0, 0, kSecond + 0x10, 0, 0, kOutermost + 8, 0});
    target.set_mappings({{kCode, kCode + 0x1000, kTable, 0, WL_MAPPING_MANAGED}});
    show();
  }
  void add(std::uint64_t address, const std::vector<FrameRow>& rows) {
    ASSERT_TRUE(manager->add({{address, 0x40, "f", 0, rows}}));
  }
  // The table as it is now is what the process has.
  void show() {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(CodeTableAccess::mapping(manager->reader()));
    target.memory[kTable].assign(bytes, bytes + CodeTableAccess::table(manager->reader()).size);
  }
  std::vector<std::uint64_t> walk() { return target.walk(FakeTarget::cursor(kFirst + 0x20, kStack, 0)); }

  FakeTarget target;
  const wl_unwind& unwind = target.scratch->unwind;
  std::optional<CodeManager> manager;
  const std::vector<std::uint64_t> whole{(kFirst + 0x20) | WL_FRAME_EXACT, kSecond + 0x10, kOutermost + 8};
};

TEST_F(ManagedCode, IsLeftByTheRowsOfItsTable) {
  EXPECT_EQ(walk(), whole);
  EXPECT_EQ(unwind.end, WL_END_COMPLETE);
  EXPECT_EQ(unwind.certainty, WL_DESCRIBED);
  EXPECT_EQ(unwind.managed_frames, 3U);
  // Nothing of it is kept: other functions come there, and nobody says so.
  for (const wl_memo_entry& entry : target.memo->entries) ASSERT_EQ(entry.tag, 0U);
}

// Stacks with the same addresses are the same only as long as nothing was taken away, wherever that was.
TEST_F(ManagedCode, IsAnotherStackOnceAFunctionIsGone) {
  (void)walk();
  const std::uint64_t hash = unwind.hash;
  (void)walk();
  EXPECT_EQ(unwind.hash, hash);
  add(kOther + 0x80, {});
  show();
  (void)walk();
  EXPECT_EQ(unwind.hash, hash);
  ASSERT_TRUE(manager->remove({kOther}));
  show();
  EXPECT_EQ(walk(), whole);
  EXPECT_NE(unwind.hash, hash);
}

// A frame of another manager's code is looked up in that one's table.
TEST_F(ManagedCode, CallsCodeOfAnotherManager) {
  constexpr std::uint64_t kOtherCode = kCode + 0x10000, kOtherTable = kTable + 0x100000;
  auto other = CodeManager::create(kOtherCode, kOtherCode + 0x1000,
                                   {.functions = 16, .shape_bytes = 4096, .name_bytes = 4096, .past = 16});
  ASSERT_TRUE(other);
  const std::vector<FrameRow> rows{test::managed_row(0, 0x40, 16)};
  ASSERT_TRUE(other->add({{kOtherCode + 0x80, 0x40, "g", 0, rows}}));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(CodeTableAccess::mapping(other->reader()));
  target.memory[kOtherTable].assign(bytes, bytes + CodeTableAccess::table(other->reader()).size);
  target.set_mappings({{kCode, kCode + 0x1000, kTable, 0, WL_MAPPING_MANAGED},
                       {kOtherCode, kOtherCode + 0x1000, kOtherTable, 0, WL_MAPPING_MANAGED}});
  // The first function's frame has 4 words, the other manager's 2, the second function's 3.
  target.write(kStack, {0, 0, 0, kOtherCode + 0x90, 0, kSecond + 0x10, 0, 0, kOutermost + 8, 0});
  const std::vector<std::uint64_t> frames{(kFirst + 0x20) | WL_FRAME_EXACT, kOtherCode + 0x90, kSecond + 0x10,
                                          kOutermost + 8};
  EXPECT_EQ(walk(), frames);
  EXPECT_EQ(unwind.managed_frames, 4U);
}

// The agent knows how to follow its code, and has the table where the process's is not to be read now. No frame pointer
// is followed here, however right it looks.
TEST_F(ManagedCode, GoesToTheAgentWhereItsTableDoesNotHelp) {
  const auto goes = [&](std::uint64_t pc) {
    target.write(kStack, {kStack + 32, kSecond + 0x10, 0, 0, 0, kSecond + 0x10});
    const auto frames = target.walk(FakeTarget::cursor(pc, kStack, kStack));
    EXPECT_EQ(frames.size(), 1U);
    EXPECT_EQ(unwind.end, WL_END_NO_ROW);
    EXPECT_EQ(unwind.managed_frames, 0U);
  };
  goes(kOther + 8);     // it has no rows
  goes(kFirst + 0x40);  // no function
  goes(kCode + 0xfff);
  target.set_mappings({{kCode, kCode + 0x2000, kTable, 0, WL_MAPPING_MANAGED}});
  goes(kCode + 0x1000);  // not the manager's code
  target.memory[kTable].resize(512);
  goes(kFirst + 8);
  target.memory.erase(kTable);
  goes(kFirst + 8);
}

// A row that only user space can apply.
TEST_F(ManagedCode, GoesToTheAgentWhereARowIsAnExpression) {
  FrameRow row = test::managed_row(0, 0x40, 8);
  // DW_OP_breg7 8; DW_OP_breg6 0; DW_OP_plus
  const std::byte expression[] = {std::byte{0x77}, std::byte{8}, std::byte{0x76}, std::byte{0}, std::byte{0x22}};
  row.cfa = CfaRule::expression({0, sizeof expression});
  row.expressions = ByteView(expression, sizeof expression);
  add(kCode + 0xa00, {row});
  show();
  EXPECT_EQ(target.walk(FakeTarget::cursor(kCode + 0xa08, kStack, kStack)).size(), 1U);
  EXPECT_EQ(unwind.end, WL_END_UNSUPPORTED_EXPRESSION);
}

}  // namespace
}  // namespace windlass
